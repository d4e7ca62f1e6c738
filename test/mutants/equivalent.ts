// biome-ignore-all lint/suspicious/noTemplateCurlyInString: they are source text, not templates.
/** Mutants that no test can kill, by their ids: nobody could tell them from the source. */
export const EQUIVALENT: Readonly<Record<string, { readonly change: string; readonly reason: string }>> = {
  '159ecc8': {
    change:
      "reservations/settlement.ts: < to <=: if (unpaid < 0 && (how === 'degraded' || !hasPaid(limiter, estimate))) return 0",
    reason: 'A difference of 0 is 0 either way.',
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
  '0d198fe': {
    change: 'statements/levels.ts: offset 0 to nothing: source: sql`(${query} offset 0) as ${name(alias)}`,',
    reason: 'The arithmetic is the same. Postgres works expressions out more than once, which takes longer.',
  },
  '3307d3c': {
    change: 'statements/setting.ts: never: if (settings.length === 0) return { links: [], join: sql`` }',
    reason: 'A select of no columns has one row, and to join it changes nothing. It is work for nothing.',
  },
  '2354379': {
    change: "statements/levels.ts: offset 0 to nothing: export const BY_ITSELF: SQL = sql.raw('offset 0')",
    reason: 'The rows are the same. Postgres may join them by reading the whole table, which takes longer.',
  },
  '0193ebb': {
    change: "runtime/coalescer.ts: === to !==: return purpose === 'look' ? `look ${key}` : `call ${key}`",
    reason: 'The two names are exchanged. Nobody reads them.',
  },
  '0fb3d8b': {
    change:
      'algorithms/sliding-window.ts: >= to >: const ends = windowStart + (room >= 0 ? periodMs : 2 * periodMs)',
    reason: 'It is a guess at the time, from which the search finds the right one all the same.',
  },
  '07a43d6': {
    change: 'runtime/coalescer.ts: never: if (line.takenBack === 0) return',
    reason: 'Nothing is found to remove. The return spares the search.',
  },
  '0c6007f': {
    change: 'http/client-key.ts: > to >=: const forwarded = trustedHops > 0 ? forwardedFor(request) : []',
    reason: 'Without trusted hops only the last entry is believed, which is the address of the connection.',
  },
  '111148a': {
    change:
      "reservations/token.ts: <= to <: checkOption(typeof token === 'string' && token.length <= MAX_LENGTH, NOT_SIGNED)",
    reason: 'The longest token is shorter.',
  },
  '5f2692b': {
    change: 'algorithms/periods.ts: > to >=: while (startOf(n) > time) n--',
    reason: 'If it goes back one period too many, the next line goes forward again.',
  },
  '130f38b': {
    change:
      'statements/row.ts: offset 0 to nothing: source: sql`(select ${sql.join(list, sql`, `)} offset 0) as stored`,',
    reason: 'The arithmetic is the same. Postgres works expressions out more than once, which takes longer.',
  },
  '0767c4c': {
    change:
      'runtime/decide.ts: > to >=: return again.length > 0 ? { groups: again, periodMs: rightMs } : undefined',
    reason: 'A statement for no groups fails before it is sent, and there is nobody to tell.',
  },
  fe21864: {
    change:
      'database/run.ts: own[name] !== undefined ? own[name] : params[name] -> params[name] ?? own[name]',
    reason: "No parameter has the name of a call's own value.",
  },
  '0b13a34': {
    change:
      'check/answer.ts: > to >=: const before = call.reserved > 0 ? afterCalls(outcome, place) : undefined',
    reason: 'What was used before a call that reserves nothing is worked out, and never asked for.',
  },
}
