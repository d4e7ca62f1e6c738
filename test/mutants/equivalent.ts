// biome-ignore-all lint/suspicious/noTemplateCurlyInString: they are source text, not templates.
/** Mutants that no test can kill, by their ids: nobody could tell them from the source. */
export const EQUIVALENT: Readonly<Record<string, { readonly change: string; readonly reason: string }>> = {
  e078532: {
    change: 'statements/decided.ts: startsFull ? granted : sql`greatest(${granted}, 0)` -> granted',
    reason: 'Fewer than 0 calls are granted to rows in debt only, and those are not written for it.',
  },
  a4cf7ab: {
    change:
      "runtime/coalescer.ts: lines.length === most || group.request.purpose === 'adjust' -> lines.length === most",
    reason: 'canShare lets no other line into the statement of an adjustment. The break spares the search.',
  },
  '165422d': {
    change:
      "runtime/coalescer.ts: one.purpose === other.purpose && one.purpose !== 'adjust' && -> one.purpose === other.purpose &&",
    reason: 'An adjustment ends the loop that asks canShare.',
  },
  def0847: {
    change: 'runtime/ask.ts: asked[0]?.request.paidWindowStart ?? null -> null',
    reason: 'Rows that are made have used nothing, so no window can give back.',
  },
  '84c388c': {
    change: 'runtime/decide.ts: await this.#prepare?.() fulfil -> fulfil',
    reason: 'A key is held only after a statement for many keys, which has waited for the tables.',
  },
  '3198ae3': {
    change: 'statements/take.ts: ${guarding.fits ? sql`where ${guarding.fits}` : sql``}` -> `',
    reason: 'The update has the same guard, so nothing is written. The row is locked a moment longer.',
  },
  ba7b75e: {
    change:
      'statements/take.ts: where(and(isTheRow, isWritten(rules), isRare, guarding.fits)) -> where(and(isTheRow, isWritten(rules), isRare))',
    reason: "Without the guard's consent no row was locked, so there is none to update.",
  },
  '1ccb88b': {
    change: 'statements/take.ts: where(and(isTheRow, guarding.fits)) -> where(isTheRow)',
    reason: 'The update has the same guard, so nothing is written. The row is locked a moment longer.',
  },
  '70d384d': {
    change: 'statements/make.ts: source.guarded && !waits -> source.guarded',
    reason: 'A guard that does not fit has the statement run again. Waiting ones go without to save that.',
  },
  '3ee0152': {
    change: 'runtime/decide.ts: groups.length > 1 ? inLockOrder(groups) : groups -> groups',
    reason:
      'A take skips rows that are locked and a look locks none, so neither waits whatever the order is.',
  },
}
