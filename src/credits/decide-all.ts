import type { Answered } from '../answers/answer.ts'
import type { LimitResult } from '../answers/results.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import { found } from '../several/enough.ts'
import { answersIn, reportsOf } from '../several/limit-all.ts'
import type { Group } from '../several/sending.ts'
import { sharesOf } from '../several/shares.ts'
import { askedOf, isRepeated, takeTogether, watchAll } from '../several/together.ts'
import { attempt } from './attempt.ts'
import { MAX_ATTEMPTS, outrun } from './burn.ts'
import { type Part, type Payers, partsOf, paysIn, seenAfter, sourcesIn } from './charge.ts'
import { forcedPayers, hasMore, type Mixed, netOf, payersFor, spread } from './in-list.ts'
import { read, type Seen } from './read.ts'
import { allowed, charged, denied } from './usage.ts'

/** How calls on limits and on the credits of a key were decided together. */
export interface DecidedAll {
  /** In the order of the calls. */
  readonly answered: readonly Answered[]
  /** What the grants have paid. */
  readonly parts: readonly Part[]
  /** Milliseconds until all would be allowed. */
  readonly retryAfter: number
}

/** Decides all calls: all are consumed, or none. */
export function decideAll(mixed: Mixed, tx: Database | undefined, id?: LimiterCall): Promise<DecidedAll> {
  const decided = decide(mixed, tx, id)
  const answered = decided.then((all) => all.answered)
  return watchAll(mixed.calls, tx, answered, reportsOf).then(() => decided)
}

async function decide(
  mixed: Mixed,
  tx: Database | undefined,
  id: LimiterCall | undefined,
): Promise<DecidedAll> {
  const { account, rate, force } = mixed
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const seen = await read(account, tx)
    const payers = force ? forcedPayers(mixed, seen, rate) : payersFor(mixed, seen, rate)
    const sent = await attempt(
      account.checker,
      tx,
      (own) => send(mixed, payers, id, own),
      ({ isDone }) => isDone,
    )
    if (sent.isDone || sent.isEnough) return sent
    // Others were faster, or the grants have too little.
    if (!force && !hasMore(mixed, await read(account, tx), payers, sent.before)) return sent
  }
  throw outrun()
}

/** Sends the list once. */
async function send(
  { account, calls, place, rate, force }: Mixed,
  payers: Payers,
  id: LimiterCall | undefined,
  tx: Database | undefined,
): Promise<DecidedAll & { readonly isDone: boolean; readonly isEnough: boolean; readonly before: Seen }> {
  const asked = askedOf(spread(calls, place, payers.rows), tx, id)
  const order = payers.rows.map((each) => found(asked.rowOf, each))
  const group: Group = { rate, least: rate, order, pays: paysIn(asked, payers) }
  const decisions = await takeTogether(asked, [group])
  const sources = sourcesIn(asked, group, decisions, payers)
  const shares = sharesOf(sources, rate, rate)
  const isCharged = decisions.isDone
  const before = seenAfter(payers, sources)
  const after = seenAfter(payers, sources, isCharged ? shares : undefined)
  const ownAnswer = (): LimitResult => {
    if (isRepeated(asked, decisions)) return { ...allowed(before), repeated: true }
    if (isCharged) return charged(account, before, after)
    return shares ? allowed(before) : denied(before)
  }
  const others = calls.filter((_, at) => at !== place)
  const answered: Answered[] = answersIn({ ...asked, calls: others }, decisions)
  answered.splice(place, 0, { answer: ownAnswer(), paid: { rate, windowStart: null, usedBefore: null } })
  const wait = Math.max(...answered.map(({ answer }) => answer.retryAfter))
  // A grant may end before the other limits have enough.
  const isEnoughThen = force || netOf(before, before.now + wait) >= rate
  return {
    answered,
    parts: isCharged && shares ? partsOf(payers, shares) : [],
    retryAfter: wait === 0 || isEnoughThen ? wait : Number.POSITIVE_INFINITY,
    isDone: isCharged || isRepeated(asked, decisions),
    isEnough: shares !== undefined,
    before,
  }
}
