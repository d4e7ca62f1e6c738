import type { Answered } from '../kernel/answers/answer.ts'
import type { Allowed, Denied, GrantResult, LimitResult, Usage } from '../kernel/answers/results.ts'
import { onFirstUse } from '../kernel/base/on-first-use.ts'
import { own } from '../kernel/base/own.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import type { FundedCall } from '../kernel/engine/funds.ts'
import type { Credits } from '../kernel/limits/credits.ts'
import { answerOnce } from '../kernel/lists/limit-once.ts'
import type { TxOptions } from '../kernel/options/calls.ts'
import type { CreditGrantOptions, CreditLimitOptions } from '../kernel/options/grants.ts'
import type { CreditReserveOptions } from '../kernel/options/reserve.ts'
import { checkOption, isCredits } from '../kernel/options/validate.ts'
import { fundedCall } from './funded.ts'
import { type CreditGrant, grant, grantsOf, voidGrant } from './grants.ts'
import { sumOf } from './purse.ts'
import { accountOf, readSums } from './read.ts'
import type { Account } from './seen.ts'
import { usageOf } from './usage.ts'

// The calls of a `Ratelimit` whose limiter is made by `Ratelimit.credits`.

/** An estimate that was taken from credits and waits for its cost. */
export interface CreditReservation {
  /**
   * Settles the actual cost. If the estimate was too high, the rest goes back to the grants that paid, the last
   * one first; a grant that has ended gets nothing back. If it was too low, the rest is taken, into debt if
   * necessary. It is never denied.
   *
   * It can be called again after an error that says that nothing was charged, and after a rollback of `tx`.
   *
   * @throws RatelimitError `INVALID_RATE`, `ALREADY_SETTLED`, and the errors of `Ratelimit.limit`.
   */
  commit(actual: number, options?: TxOptions): Promise<Allowed>
  /** Gives all of it back: the same as `commit(0)`. */
  release(options?: TxOptions): Promise<Allowed>
}

/** The answer of `Ratelimit.reserve` on credits. A denial needs no settling. */
export type CreditReserved = (Allowed & CreditReservation) | Denied

const reservation = /* @__PURE__ */ onFirstUse(() => import('../estimates/reservation.ts'))

/** The calls on the credits of a key. */
export interface CreditCalls {
  limit(options: CreditLimitOptions): Promise<LimitResult>
  reserve(options: CreditReserveOptions): Promise<CreditReserved>
  grant(amount: number, options: CreditGrantOptions): Promise<GrantResult>
  grantsOf(options: TxOptions): Promise<CreditGrant[]>
  voidGrant(id: string, options: TxOptions): Promise<number>
}

/**
 * The calls on the credits of a key.
 *
 * @throws RatelimitError `INVALID_OPTION` for another limiter, `INVALID_KEY`
 */
export function callsOn(checker: Checker, limiter: unknown, key: string): CreditCalls {
  checkOption(isCredits(limiter), 'This call needs a limiter made by Ratelimit.credits.')
  const account = accountOf({ checker, credits: limiter, key })
  return {
    limit: (options) => own(limit(account, options)),
    reserve: (options) => own(reserve(account, options)),
    grant: (amount, options) => own(grant(account, amount, options)),
    grantsOf: (options) => own(grantsOf(account, options)),
    voidGrant: (id, options) => own(voidGrant(account, id, options)),
  }
}

/** Takes from the credits, gives back, or looks. */
async function limit(account: Account, options: CreditLimitOptions): Promise<LimitResult> {
  const call = callBy(account, options)
  const answered = await answerOnce(call, options.once, options.tx)
  if (call.call.rate < 0) return givenBack(account, options, answered)
  return answered.answer
}

/** What was given back in the end. If others have given back to the same grants meanwhile, it tries again. */
async function givenBack(
  account: Account,
  { rate = 1, tx }: CreditLimitOptions,
  { answer, parts = [] }: Answered,
): Promise<LimitResult> {
  if (!answer.success || answer.repeated) return answer
  const { returned = 0 } = answer
  if (returned >= sumOf(parts)) return answer
  const rest = { rate: rate + returned, tx }
  try {
    const more = await givenBack(account, rest, await answerOnce(callBy(account, rest), undefined, tx))
    return more.success ? { ...more, returned: returned + (more.returned ?? 0) } : answer
  } catch (error) {
    // What was given back until now counts, unless the transaction is lost anyway.
    if (account.checker.joined(tx)) throw error
    return answer
  }
}

/** Charges an estimate. */
async function reserve(account: Account, options: CreditReserveOptions): Promise<CreditReserved> {
  return (await reservation()).reserve(callBy(account, options), options)
}

/** @throws RatelimitError `INVALID_RATE`, `INVALID_OPTION` */
function callBy({ checker, credits, key }: Account, options: CreditLimitOptions): FundedCall {
  const { rate = 1, atLeast, force = false } = options
  return fundedCall(checker, credits, key, { rate, force, atLeast })
}

/**
 * Looks at the credits of keys, in one statement.
 *
 * @throws RatelimitError `INVALID_KEY`
 */
export async function lookAtAll(
  checker: Checker,
  credits: Credits,
  keys: readonly string[],
  { tx }: TxOptions,
): Promise<Usage[]> {
  const { hash } = checker.terms
  // Unlike `map`, it does not skip the holes of a list.
  const stored = await Promise.all(Array.from(keys, async (key) => (hash ? hash(key) : key)))
  for (const key of stored) accountOf({ checker, credits, key })
  return (await own(readSums(checker, stored, tx))).map(usageOf)
}
