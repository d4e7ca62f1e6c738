import { limiterOf } from '../algorithms/grant.ts'
import type { LimiterCall } from '../check/checker.ts'
import { RatelimitError } from '../errors.ts'
import { checkOption, checkRate } from '../options/validate.ts'
import type { Decision } from '../runtime/call.ts'
import { lookAt } from '../runtime/look-at.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { type AnyCall, isCreditCall } from '../several/calls-of.ts'
import { found, sourceOf } from '../several/enough.ts'
import type { Group } from '../several/sending.ts'
import { type Source, sharesOf } from '../several/shares.ts'
import type { Asked } from '../several/together.ts'
import { firstOf, type Payers, payersOf, sourcesIn } from './charge.ts'
import { type Account, accountOf, leftOf, type Seen } from './read.ts'

// The credits of a key together with other limits. The list of a call has a row for each grant that is to pay.

/** Calls on limits, and on the credits of one key. */
export interface Mixed {
  /** In the order of the requests. In place of the credits stands a call that no row decides. */
  readonly calls: readonly LimiterCall[]
  readonly account: Account
  /** The place of the credits. */
  readonly place: number
  readonly rate: number
  readonly force: boolean
}

/** Postgres would take too long to plan a list with more grants. */
const MAX_GRANTS = 40

/** A list has 50 rows at most. One may be the debt, one an id, and one at least is a grant. */
const MAX_ROWS = 48

/** How many rows the calls have at least. A limiter with `blocks` looks at a second one. */
function rowsOf(calls: readonly Pick<AnyCall, 'checker'>[]): number {
  return calls.reduce((sum, { checker }) => sum + (checker.config.blocks ? 2 : 1), 0)
}

/** How many grants such a list may have. */
export function roomIn(calls: readonly Pick<AnyCall, 'checker'>[]): number {
  return Math.min(MAX_GRANTS, MAX_ROWS + 1 - rowsOf(calls))
}

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_KEY`, `INVALID_RATE` */
export function mixedOf(calls: readonly AnyCall[]): Mixed {
  const place = calls.findIndex(isCreditCall)
  const own = calls[place]
  checkOption(
    own !== undefined && isCreditCall(own) && calls.filter(isCreditCall).length === 1,
    'One call takes the credits of one key only.',
  )
  checkOption(rowsOf(calls) <= MAX_ROWS, `With credits, a call takes at most ${MAX_ROWS} rows.`)
  const { rate, force } = own
  const account = accountOf(own)
  const limiter = limiterOf(account.credits)
  checkRate(rate, limiter)
  if (rate <= 0)
    throw new RatelimitError(
      'INVALID_RATE',
      'In a call with other limits, the rate of credits must be a whole number above 0.',
    )
  checkOption(
    calls.every(({ checker }) => !checker.config.table.distributed && !checker.config.reporting.dryRun),
    'In a call with credits, no limiter may have distributed: true or dryRun: true.',
  )
  const standIn: LimiterCall = {
    checker: account.checker,
    call: { ...lookAt(account.key, limiter), rate, purpose: 'take' },
  }
  return { calls: calls.map((each) => (isCreditCall(each) ? standIn : each)), account, place, rate, force }
}

/** What each call is in the list: itself, or the rows of the credits. */
export function spread<T>(each: readonly T[], place: number, own: readonly T[]): T[] {
  return each.flatMap((one, at) => (at === place ? own : [one]))
}

/**
 * The grants that are to pay the rate, and the debt if there is one. If they have too little, all that have
 * something.
 */
export function payersFor({ account, calls }: Mixed, seen: Seen, rate: number): Payers {
  const left = seen.grants.filter((grant) => leftOf(grant) > 0)
  const paying = firstOf(left, rate + seen.debt)
  const { thresholds } = account.checker.config.reporting
  // With thresholds, what is left in all has to be exact.
  const locked = thresholds.length > 0 ? left : paying
  // A list needs a row.
  const isEmpty = locked.length === 0 && calls.length === 1
  return payersOf(
    account,
    seen,
    locked.slice(0, roomIn(calls)),
    rate,
    seen.debt > 0 || isEmpty ? 'paid' : 'left',
  )
}

/** The same for a call that is never denied: the debt takes what they do not have, or what others have. */
export function forcedPayers(
  { account, calls }: Pick<Mixed, 'account' | 'calls'>,
  seen: Seen,
  rate: number,
): Payers {
  const left = seen.grants.filter((grant) => leftOf(grant) > 0)
  const paying = firstOf(left, rate + seen.debt)
  const room = roomIn(calls)
  const isEnough = netOf(seen) >= rate && paying.length <= room
  return payersOf(account, seen, paying.slice(0, room), rate, isEnough ? 'left' : 'takes the rest')
}

/** What each call has found: one row, no row, or the rows of the credits. */
export function sourcesOf(
  { calls, place }: Pick<Mixed, 'calls' | 'place'>,
  asked: Asked,
  group: Group,
  decisions: Decisions,
  payers: Payers,
): (Source & { readonly snapshot: Decision })[][] {
  return calls.map((each, at) => {
    if (at === place) return sourcesIn(asked, group, decisions, payers)
    const row = asked.rowOf.get(each)
    if (!row) return [{ call: each.call, snapshot: found(asked.unlimited, each).decision }]
    return [{ ...sourceOf(group, row, found(decisions.looks, row)), call: each.call }]
  })
}

/** What a list has charged. */
interface Charged {
  /** The share of each call. Undefined if nothing was charged. */
  readonly granted: readonly number[] | undefined
  /** The shares of the rows of the credits. */
  readonly own: readonly number[]
}

/** The shares of the calls in a rate that they share. */
export function chargedIn(
  sources: ReturnType<typeof sourcesOf>,
  place: number,
  { isDone }: Decisions,
  { rate, least }: Pick<Group, 'rate' | 'least'>,
): Charged {
  const shares = isDone ? sharesOf(sources.flat(), rate, least) : undefined
  const ofEach = sources.map((each, at) => {
    const start = sources.slice(0, at).flat().length
    return shares?.slice(start, start + each.length) ?? []
  })
  const granted = ofEach.map((each) => each.reduce((sum, share) => sum + share, 0))
  return { granted: shares && granted, own: ofEach[place] ?? [] }
}

/**
 * Whether a later read shows more than the rows had, so that the call may be allowed after all.
 *
 * @throws RatelimitError `INVALID_OPTION` if there are more grants than a call can take from.
 */
export function hasMore({ calls }: Mixed, seen: Seen, { rows }: Payers, before: Seen): boolean {
  const locked = before.grants.filter((grant) => rows.some((row) => row.grant?.id === grant.id))
  const isMore = netOf(seen) > netOf({ ...before, grants: locked })
  checkOption(
    !isMore || locked.length < roomIn(calls),
    `With these limits a call takes from at most ${roomIn(calls)} grants. A smaller rate takes from fewer.`,
  )
  return isMore
}

/** What there is beyond the debt, at a time. */
export function netOf({ grants, debt }: Pick<Seen, 'grants' | 'debt'>, now?: number): number {
  const left = grants.map((grant) =>
    leftOf(now === undefined ? grant : { ...grant, look: { ...grant.look, now } }),
  )
  return Math.max(
    left.reduce((sum, each) => sum + each, -debt),
    0,
  )
}
