import { reserve as RESERVE_NAMES, type ReserveOptions } from '../estimates/options.ts'
import type { Reserved, ReservedPart } from '../estimates/reservation.ts'
import type { ReservationName } from '../estimates/settle-options.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { onFirstUse } from '../kernel/base/once.ts'
import type { Database } from '../kernel/database/database.ts'
import { calledBy, handleOf } from '../kernel/engine/handles.ts'
import { own } from '../kernel/errors.ts'
import type { EndedPeriod } from '../kernel/limits/algorithm.ts'
import * as CALLS from '../kernel/options/call-table.ts'
import type { CallOptions } from '../kernel/options/calls.ts'
import type { QuotaConfig } from '../kernel/options/config.ts'
import type { Offered } from '../kernel/options/settings.ts'
import { callOf } from '../kernel/options/validate.ts'
import { Ratelimit } from '../ratelimit.ts'
import type { ChangePlanOptions } from './change-plan.ts'

const CHANGE_NAMES: NamesOf<ChangePlanOptions> = { ...CALLS.tx, from: true, to: true }

const byName = /* @__PURE__ */ onFirstUse(() => import('../estimates/by-name.ts'))
const reserving = /* @__PURE__ */ onFirstUse(() => import('../estimates/reservation.ts'))
const changing = /* @__PURE__ */ onFirstUse(() => import('./change-plan.ts'))

/**
 * A `Ratelimit` for billing. It keeps its counts in the logged table unless `durable: false` says otherwise, it
 * can keep periods that have ended, and its reservations can have names.
 *
 * @throws RatelimitError the errors of the constructor of `Ratelimit`.
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { Quota } from 'drizzle-ratelimit/quota'
 * import { db } from './app.ts'
 *
 * const tokens = new Quota({ db, limiter: calendarWindow(50_000, 'month'), prefix: 'tokens' })
 * await db.transaction(async (tx) => {
 *   const { success } = await tokens.limit('org:1', { rate: 12, tx })
 *   if (!success) tx.rollback()
 * })
 * ```
 */
export class Quota<D = Database> extends Ratelimit<D> {
  /** What a quota offers. */
  protected static override readonly offered: Offered = { durable: true, periods: true }

  constructor(config: QuotaConfig<D>) {
    // The options that only a quota has are checked by what it offers.
    super(config as ConstructorParameters<typeof Ratelimit<D>>[0])
  }

  /** Charges what is left, from `atLeast` to `rate` units. `granted` in the answer says how many. */
  override reserve(key: string, options: ReserveOptions & { readonly atLeast: number }): Promise<ReservedPart>
  /**
   * Charges an estimate. When the cost is known, `commit(actual)` or `release()` corrects it. With a name,
   * `id` and `expires`, another process can do that: see {@link Quota.settle}.
   *
   * If the process crashes before that, the estimate stays charged.
   *
   * @throws RatelimitError the errors of {@link Ratelimit.reserve}.
   *
   * @example
   * ```ts
   * import type { Quota } from 'drizzle-ratelimit/quota'
   *
   * declare const tokens: Quota
   * const { success } = await tokens.reserve('org:1', { rate: 4000, id: 'job:7', expires: '10m' })
   * ```
   */
  override reserve(key: string, options?: ReserveOptions): Promise<Reserved>
  override async reserve(key: string, options: ReserveOptions = {}): Promise<Reserved> {
    const handle = handleOf(this, NOT_OF_QUOTA)
    checkOptions(options, RESERVE_NAMES)
    const charged = await calledBy(handle, key, options)
    return await own((await reserving()).reserve(charged, options))
  }

  /**
   * Settles a reservation by its name: from any process, and once. Again with the same cost it charges nothing,
   * and the answer has `repeated: true`. A rollback of `tx` makes the reservation open again.
   *
   * @throws RatelimitError `NOT_RESERVED` if there is no such reservation; `ALREADY_SETTLED` if it was settled
   * with another cost; `OTHER_PLAN` if it was made with a `limiter` and none is given; the errors of
   * {@link Reservation.commit}.
   *
   * @example
   * ```ts
   * import type { Quota } from 'drizzle-ratelimit/quota'
   *
   * declare const tokens: Quota
   * const reserved = await tokens.reserve('org:1', { rate: 4000, id: 'job:7', expires: '10m' })
   * if (reserved.success) {
   *   // In any process:
   *   await tokens.settle({ key: 'org:1', id: 'job:7' }, 3120)
   * }
   * ```
   */
  async settle(name: ReservationName, actual: number, options: CallOptions = {}): Promise<Allowed> {
    handleOf(this, NOT_OF_QUOTA)
    checkOptions(options, CALLS.call)
    const { settleName } = await byName()
    return await settleName(this, name, actual, options)
  }

  /**
   * Ends the key's period now, and begins one of another plan. It is for plans whose periods differ, such as a
   * month and a year: without it, the row of the old period goes on under the new plan, and is handed out once,
   * as one period.
   *
   * The new plan begins with its whole limit, so call it only when the customer's plan changes, in that
   * transaction. It needs `keepEnded`, so that the row stays until its period is handed out.
   *
   * @returns The period that has ended, up to now; undefined if nothing was used in it.
   * @throws RatelimitError `INVALID_OPTION` for plans other than fixed and calendar windows, without
   * `keepEnded`, and with `onOtherPlan: 'throw'`; `OTHER_PLAN` if the row was counted by another algorithm than
   * `from`; the errors of {@link Ratelimit.limit}.
   *
   * @example
   * ```ts
   * import { calendarWindow } from 'drizzle-ratelimit/calendar'
   * import type { Quota } from 'drizzle-ratelimit/quota'
   * import { db } from './app.ts'
   *
   * declare const quota: Quota
   * const [from, to] = [calendarWindow(1000, 'month'), calendarWindow(20_000, 'year')]
   * await db.transaction(async (tx) => {
   *   const ended = await quota.changePlan('org:1', { from, to, tx })
   *   if (ended) console.log(ended.start, ended.end, ended.used) // bill it with `tx`, and store the plan
   * })
   * ```
   */
  async changePlan(key: string, options: ChangePlanOptions): Promise<EndedPeriod | undefined> {
    const { checker } = handleOf(this, NOT_OF_QUOTA)
    checkOptions(options, CHANGE_NAMES)
    const stored = await checker.stored(key)
    // It checks the key and the plan.
    callOf(this.prefix, this.limiter, stored, { rate: 0, limiter: options.from })
    return (await changing()).changePlan(checker, stored, options)
  }
}

const NOT_OF_QUOTA =
  'A method was called without its Quota: write quota.settle(name, actual), or use an arrow function.'
