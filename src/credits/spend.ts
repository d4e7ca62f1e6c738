import { type Answered, answeredBy } from '../answers/answer.ts'
import type { Payment } from '../answers/outcome.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import type { SpendOptions } from '../options/reserve.ts'
import { checkOption } from '../options/validate.ts'
import {
  checkSpending,
  committing,
  msBlocked,
  orderIn,
  outcomeOf,
  reportsOf,
  type Spent,
  spentWith,
} from '../reservations/spend.ts'
import type { AnyCall } from '../several/calls-of.ts'
import { idCall } from '../several/ids.ts'
import type { Group } from '../several/sending.ts'
import { msUntilEnough } from '../several/shares.ts'
import { askedOf, isRepeated, takeTogether, watchAll } from '../several/together.ts'
import { attempt } from './attempt.ts'
import { MAX_ATTEMPTS, outrun } from './burn.ts'
import { type Payers, partsOf, paysIn, seenAfter } from './charge.ts'
import { chargedIn, hasMore, type Mixed, mixedOf, payersFor, sourcesOf, spread } from './in-list.ts'
import { read, type Seen } from './read.ts'
import { giveBack, type MixedExpense, takeMore } from './settle-spent.ts'
import { allowed, charged } from './usage.ts'

/** Takes one rate from several limits, one of which is the credits of a key, or takes nothing. */
export async function spend(calls: readonly AnyCall[], options: SpendOptions): Promise<Spent> {
  const mixed = mixedOf(calls)
  checkSpending(mixed.calls, options)
  checkOption(
    options.id === undefined && options.expires === undefined,
    'Estimates on credits have no names: leave out id and expires.',
  )
  return watchAll(mixed.calls, options.tx, spendFrom(mixed, options), reportsOf)
}

/**
 * The grants are read without a lock, and charged together with the other rows as one list. If it is denied,
 * and a later read shows more than the list has found, it is sent again.
 */
async function spendFrom(mixed: Mixed, options: SpendOptions): Promise<Spent> {
  const id = await idCall(options.once, mixed.calls)
  let seen = await read(mixed.account, options.tx)
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const payers = payersFor(mixed, seen, options.rate)
    const { spent, before } = await attempt(
      mixed.account.checker,
      options.tx,
      (tx) => spendBy(mixed, payers, id, options, tx),
      ({ spent: { success } }) => success,
    )
    if (spent.success) return spent
    seen = await read(mixed.account, options.tx)
    if (!hasMore(mixed, seen, payers, before)) return spent
  }
  throw outrun()
}

/** The credits have no payment of their own: the grants that paid are known. */
const BY_GRANTS: Payment = { rate: 0, windowStart: null, usedBefore: null }

async function spendBy(
  mixed: Mixed,
  payers: Payers,
  id: LimiterCall | undefined,
  { rate, atLeast = rate, tx: spentIn }: SpendOptions,
  tx: Database | undefined,
): Promise<{ readonly spent: Spent; readonly before: Seen }> {
  const { account, place } = mixed
  const calls = spread(mixed.calls, place, payers.rows)
  const asked = askedOf(calls, tx, id)
  const group: Group = { rate, least: atLeast, order: orderIn(asked, calls), pays: paysIn(asked, payers) }
  const decisions = await takeTogether(asked, [group])
  const sources = sourcesOf(mixed, asked, group, decisions, payers)
  const { granted, own } = chargedIn(sources, place, decisions, group)
  const ownSources = sources[place] ?? []
  const before = seenAfter(payers, ownSources)
  const after = seenAfter(payers, ownSources, own)
  const answered = mixed.calls.map(({ call, checker }, at): Answered => {
    const source = sources[at]?.[0]
    if (at === place || !source) {
      return { answer: granted ? charged(account, before, after) : allowed(before), paid: BY_GRANTS }
    }
    return answeredBy(outcomeOf(call, source.snapshot, granted?.[at] ?? 0), checker.config.reporting)
  })
  const expense: MixedExpense = {
    calls: mixed.calls,
    granted: granted ?? mixed.calls.map(() => 0),
    paid: answered.map(({ paid }) => paid),
    results: answered.map(({ answer }) => answer),
    ...{ account, place, parts: partsOf(payers, own) },
  }
  const commit = committing(expense, spentIn, {
    takeMore: (...settling) => takeMore(expense, ...settling),
    giveBack: (...settling) => giveBack(expense, ...settling),
  })
  const { results } = expense
  const spent = spentWith(
    { granted: expense.granted, results },
    {
      isRepeated: isRepeated(asked, decisions),
      commit: granted && commit,
      wait: () => Math.max(msUntilEnough(sources.flat(), atLeast), msBlocked(asked, decisions)),
    },
  )
  return { spent, before }
}
