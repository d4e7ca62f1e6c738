import { limiterOf } from '../algorithms/grant.ts'
import type { Allowed, Denied, GrantResult, LimitResult, Usage } from '../answers/results.ts'
import { checkOptions, checkSwitch, type NamesOf } from '../base/check-options.ts'
import type { Checker } from '../check/checker.ts'
import { watch } from '../check/watch.ts'
import { ownError, RatelimitError } from '../errors.ts'
import { ALL_NAMES, TX_NAMES, type TxOptions } from '../options/calls.ts'
import type { CreditGrantOptions, CreditLimitOptions, CreditReserveOptions } from '../options/grants.ts'
import { checkOption, checkRate, isCredits } from '../options/validate.ts'
import { Once, refuseRepeated } from '../several/once.ts'
import { type Burned, burn } from './burn.ts'
import type { Part } from './charge.ts'
import { giveBack, giveBackTo } from './give-back.ts'
import { type CreditGrant, grant, grantsOf, voidGrant } from './grants.ts'
import { type Account, accountOf, debtOf, read } from './read.ts'
import { takeShared } from './take.ts'
import { allowed, charged, denied, usageOf } from './usage.ts'

// The calls of a `Ratelimit` whose limiter is made by `Ratelimit.credits`.

const LIMIT_NAMES: NamesOf<CreditLimitOptions> = {
  ...ALL_NAMES,
  rate: true,
  force: true,
  atLeast: true,
}

const RESERVE_NAMES: NamesOf<CreditReserveOptions> = {
  ...ALL_NAMES,
  rate: true,
  atLeast: true,
}

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
  /**
   * An estimate on credits has no text.
   *
   * @throws RatelimitError `INVALID_OPTION`
   */
  toString(): string
}

/** The answer of `Ratelimit.reserve` on credits. A denial needs no settling. */
export type CreditReserved = (Allowed & CreditReservation) | Denied

/** The calls on the credits of a key. */
export interface CreditCalls {
  limit(options: CreditLimitOptions): Promise<LimitResult>
  reserve(options: CreditReserveOptions): Promise<CreditReserved>
  getRemaining(options: TxOptions): Promise<Usage>
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
    getRemaining: (options) => own(getRemaining(account, options)),
    grant: (amount, options) => own(grant(account, amount, options)),
    grantsOf: (options) => own(grantsOf(account, options)),
    voidGrant: (id, options) => own(voidGrant(account, id, options)),
  }
}

/** Calls that share a statement share its error, so each gets one of its own. */
async function own<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    throw ownError(error)
  }
}

/** Takes from the credits, gives back, or looks. */
async function limit(account: Account, options: CreditLimitOptions): Promise<LimitResult> {
  checkOptions(options, LIMIT_NAMES)
  const { rate = 1, once, tx } = options
  checkRate(rate, limiterOf(account.credits))
  if (rate > 0)
    return isShared(account, options) ? takeShared(account, rate) : (await take(account, options)).answer
  checkOption(rate !== 0 || once === undefined, 'once has no meaning with a rate of 0.')
  const refunding = async (): Promise<LimitResult> => {
    if (rate === 0) return allowed(await read(account, tx))
    const { returned, after, isRepeated } = await giveBack(account, -rate, once, tx)
    const answer = { ...allowed(after), returned }
    return isRepeated ? { ...answer, repeated: true } : answer
  }
  return published(account, rate, tx, refunding(), (answer) => answer)
}

/** Whether a call can share its statement: it needs no other row, no transaction, and not the parts. */
function isShared({ checker }: Account, { once, tx, atLeast, force }: CreditLimitOptions): boolean {
  const isPlain = once === undefined && atLeast === undefined && (force === undefined || force === false)
  return isPlain && !checker.joined(tx) && checker.config.reporting.thresholds.length === 0
}

/** Charges an estimate. */
async function reserve(account: Account, options: CreditReserveOptions): Promise<CreditReserved> {
  checkOptions(options, RESERVE_NAMES)
  const { rate = 1, tx } = options
  checkRate(rate, limiterOf(account.credits))
  if (rate <= 0) throw new RatelimitError('INVALID_RATE', 'The estimate must be a whole number above 0.')
  const { answer, burned } = await take(account, options)
  if (!answer.success) return answer
  return { ...answer, ...reservationOf(account, burned, tx) }
}

function reservationOf(account: Account, { parts, isRepeated }: Burned, chargedIn: TxOptions['tx']) {
  const settling = new Once(account.checker, chargedIn)
  const commit: CreditReservation['commit'] = async (actual, options = {}) => {
    checkOptions(options, TX_NAMES)
    checkRate(actual, limiterOf(account.credits))
    if (actual < 0) throw new RatelimitError('INVALID_RATE', 'The cost must be a number of 0 or more.')
    const { tx } = options
    if (isRepeated) refuseRepeated()
    return settling.run(tx, () => settle(account, parts ?? [], actual, tx))
  }
  return {
    commit,
    release: (options?: TxOptions) => commit(0, options),
    toString: (): string => {
      throw new RatelimitError('INVALID_OPTION', 'An estimate on credits has no text. Settle it here.')
    },
  }
}

async function settle(
  account: Account,
  parts: readonly Part[],
  actual: number,
  tx: TxOptions['tx'],
): Promise<Allowed> {
  const estimate = paidBy(parts)
  if (actual > estimate) {
    const { answer } = await take(account, { rate: actual - estimate, force: true, tx })
    // A forced call is never denied.
    return answer as Allowed
  }
  if (actual === estimate) return allowed(await read(account, tx))
  const { returned, after } = await giveBackTo(account, parts, estimate - actual, tx)
  return { ...allowed(after), returned }
}

/** The rate of a call by its parts. What was paid of a debt is no part of it. */
function paidBy(parts: readonly Part[]): number {
  return parts.reduce((sum, { amount }) => sum + amount, 0)
}

async function take(
  account: Account,
  options: CreditLimitOptions,
): Promise<{ readonly answer: LimitResult; readonly burned: Burned }> {
  const { rate = 1, atLeast = rate, force = false, once, tx } = options
  const limiter = limiterOf(account.credits)
  checkRate(rate, limiter)
  checkRate(atLeast, limiter)
  checkSwitch('force', force)
  if (atLeast < 1 || atLeast > rate)
    throw new RatelimitError('INVALID_RATE', 'atLeast must be a number from 1 to the rate.')
  checkOption(!force || options.atLeast === undefined, 'atLeast has no meaning with force: true.')
  const { thresholds } = account.checker.config.reporting
  const taking = (async () => {
    const burned = await burn(account, { rate, atLeast, force, once }, thresholds, tx)
    return { answer: answerOf(account, burned, options), burned }
  })()
  return published(account, rate, tx, taking, ({ answer }) => answer)
}

function answerOf(
  account: Account,
  { parts, before, after, isRepeated }: Burned,
  { atLeast }: CreditLimitOptions,
): LimitResult {
  const granted = atLeast === undefined ? {} : { granted: paidBy(parts ?? []) }
  if (isRepeated) return { ...allowed(after), ...granted, repeated: true }
  return parts ? { ...charged(account, before, after), ...granted } : denied(after)
}

/** Publishes how a call was decided. */
function published<T>(
  { checker, key }: Account,
  rate: number,
  tx: TxOptions['tx'],
  answered: Promise<T>,
  answerIn: (answered: T) => LimitResult,
): Promise<T> {
  if (!checker.isWatched()) return answered
  const call = { ...debtOf({ key }), key, rate }
  return watch([checker.watched(call, tx)], answered, (each) => {
    const answer = answerIn(each)
    return [{ answer, rate: answer.success && answer.repeated ? 0 : rate }]
  })
}

/** Looks at the credits. */
async function getRemaining(account: Account, options: TxOptions): Promise<Usage> {
  checkOptions(options, TX_NAMES)
  return usageOf(await read(account, options.tx))
}
