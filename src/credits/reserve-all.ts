import { limiterOf } from '../algorithms/grant.ts'
import type { Allowed } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import type { ReserveAllOptions } from '../options/reserve.ts'
import { checkOption } from '../options/validate.ts'
import { checkReserved, estimateOf } from '../reservations/reservation.ts'
import {
  checkCosts,
  costsOf,
  type Reservations,
  type ReservedAll,
  SETTLE_ALL_NAMES,
  settleAll,
} from '../reservations/reserve-all.ts'
import { checkActual, type Settled } from '../reservations/settlement.ts'
import { type Adjusted, adjustedIn } from '../several/adjust-all.ts'
import type { AnyCall } from '../several/calls-of.ts'
import { found } from '../several/enough.ts'
import { combined } from '../several/limit-all.ts'
import { Once } from '../several/once.ts'
import type { Group } from '../several/sending.ts'
import { sharesOf } from '../several/shares.ts'
import { askedOf, takeTogether } from '../several/together.ts'
import { attempt } from './attempt.ts'
import { MAX_ATTEMPTS, outrun } from './burn.ts'
import { paysIn, seenAfter, sourcesIn } from './charge.ts'
import { type DecidedAll, decideAll } from './decide-all.ts'
import { givenBack, refundCalls, refundsTo } from './give-back.ts'
import { forcedPayers, type Mixed, mixedOf } from './in-list.ts'
import { read } from './read.ts'
import { allowed, charged } from './usage.ts'

/** Charges estimates to several limits, one of which is the credits of a key: all of them, or none. */
export async function reserveAll<Request>(
  requests: readonly Request[],
  calls: readonly AnyCall[],
  { id, expires, tx }: ReserveAllOptions,
): Promise<ReservedAll<Request>> {
  const mixed = mixedOf(calls)
  checkOption(id === undefined && expires === undefined, 'Credits that end have no names.')
  for (const { call } of mixed.calls) checkReserved(call)
  const estimates = mixed.calls.map((each, at) =>
    at === mixed.place ? each : { ...each, call: estimateOf(each.call) },
  )
  const decided = await decideAll({ ...mixed, calls: estimates }, tx)
  const { success, ...answer } = combined(requests, decided.answered)
  const { retryAfter } = decided
  if (!success) return { ...answer, success, retryAfter }
  return { ...answer, success, retryAfter, ...reservationsOf(mixed, decided, tx) }
}

function reservationsOf(mixed: Mixed, decided: DecidedAll, chargedIn: Database | undefined): Reservations {
  const { account, calls, place } = mixed
  const settling = new Once(account.checker, chargedIn)
  const commit: Reservations['commit'] = async (actuals, options = {}) => {
    checkOptions(options, SETTLE_ALL_NAMES)
    const { tx, limiters = [] } = options
    checkOption(Array.isArray(limiters), 'limiters must be a list.')
    checkCosts(actuals, calls.length)
    checkOption(limiters[place] === undefined, 'Credits take no limiter: each grant has its own terms.')
    const actual = actuals[place] as number
    checkActual(actual, limiterOf(account.credits))
    const others = calls.filter((_, at) => at !== place)
    const costs = costsOf(
      others,
      decided.answered.filter((_, at) => at !== place),
      actuals.filter((_, at) => at !== place),
      calls.map((_, at) => limiters[at]).filter((_, at) => at !== place),
    )
    return settling.run(tx, () => settle(mixed, decided, others, costs, actual, tx))
  }
  return { commit, release: (options) => commit(new Array(calls.length).fill(0), options) }
}

/** Settles all costs by one list. The credits give back to the grants that paid, or take more from others. */
async function settle(
  mixed: Mixed,
  { parts }: DecidedAll,
  others: readonly LimiterCall[],
  costs: readonly Settled[],
  actual: number,
  tx: Database | undefined,
): Promise<Allowed[]> {
  const { account, place, rate } = mixed
  const own: Allowed[] = []
  const answers = await settleAll(others, costs, async (settlements) => {
    if (actual > rate) {
      const more = await takeMore(mixed, settlements, actual - rate, tx)
      own.push(more.own)
      return more.adjusted
    }
    // It is read before, because an error after the refund would say that nothing was given back.
    const seen = await read(account, tx)
    const refunds = refundCalls(account.checker, refundsTo(account, parts, rate - actual))
    const list = [...settlements, ...refunds]
    if (list.length === 0) {
      own.push(allowed(seen))
      return []
    }
    const asked = askedOf(list, tx)
    const decisions = await takeTogether(asked)
    const { after, returned } = givenBack(account.key, seen, refunds, asked, decisions)
    own.push(actual < rate ? { ...allowed(after), returned } : allowed(after))
    return adjustedIn(asked, decisions, settlements)
  })
  return [...answers.slice(0, place), ...own, ...answers.slice(place)]
}

/** Takes what the credits cost above the estimate, into debt if necessary, together with the settlements. */
async function takeMore(
  mixed: Mixed,
  settlements: readonly LimiterCall[],
  rate: number,
  tx: Database | undefined,
): Promise<{ readonly own: Allowed; readonly adjusted: readonly Adjusted[] }> {
  const { account } = mixed
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const payers = forcedPayers(mixed, await read(account, tx), rate)
    const taken = await attempt(
      account.checker,
      tx,
      async (joined) => {
        const asked = askedOf([...settlements, ...payers.rows], joined)
        const order = payers.rows.map((each) => found(asked.rowOf, each))
        const group: Group = { rate, least: rate, order, pays: paysIn(asked, payers) }
        const decisions = await takeTogether(asked, [group])
        // Others have taken from the grants meanwhile.
        if (decisions.taken.size === 0) return undefined
        const sources = sourcesIn(asked, group, decisions, payers)
        const after = seenAfter(payers, sources, sharesOf(sources, rate, rate))
        const own = charged(account, seenAfter(payers, sources), after)
        return { own, adjusted: adjustedIn(asked, decisions, settlements) }
      },
      (each) => each !== undefined,
    )
    if (taken) return taken
  }
  throw outrun()
}
