import type { AnyCredits } from '../any-credits.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Duration } from '../kernel/duration.ts'
import { blockKey, unblockKey } from '../kernel/engine/block-key.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { type Handle, handleOf } from '../kernel/engine/handles.ts'
import { lookAll } from '../kernel/engine/look-all.ts'
import { reset } from '../kernel/engine/reset.ts'
import { grant } from '../kernel/engine/upkeep.ts'
import { callOf, checkOption, checkTakesLimiter, isPrepaid } from '../kernel/options/validate.ts'
import type { Call } from '../kernel/store/call.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { type DeniedHour, type DeniedKey, denied, deniedByHour } from '../reports/denied.ts'
import { type PlanOf, readingOf } from '../reports/rows.ts'
import { type KeyUsage, type OtherUsage, usage } from '../reports/usage.ts'

/** A limit of the page whose keys have plans. */
export interface PlannedLimit {
  /** The limiter. */
  readonly ratelimit: Ratelimit
  /** The limit of a key as it is stored: its customer's plan. */
  readonly limiterOf: PlanOf
}

const PLANNED_NAMES: NamesOf<PlannedLimit> = { ratelimit: true, limiterOf: true }

/** The most keys in a list. */
const TOP = 25

/** How many hours the chart has. */
const HOURS = 24

/** A limit as the page reads and changes it. Keys are those of the rows: with `hashKeys`, the hashes. */
export class Limit {
  readonly name: string
  readonly prefix: string
  /** Whether keys are stored as hashes. */
  readonly isHashed: boolean
  /** Whether denials are counted. */
  readonly isCounted: boolean
  /** Whether it is prepaid. */
  readonly isPrepaid: boolean
  /** Whether keys can be blocked. */
  readonly isBlockable: boolean
  /** Whether a reset would forget how often the key was blocked. */
  readonly isLockout: boolean
  readonly #ratelimit: Ratelimit | AnyCredits
  readonly #handle: Handle
  readonly #limiterOf: PlanOf | undefined

  /** @throws RatelimitError `INVALID_OPTION` */
  constructor(name: string, given: Ratelimit | AnyCredits | PlannedLimit) {
    const planned = typeof given === 'object' && given !== null && 'ratelimit' in given ? given : undefined
    if (planned) checkOptions(planned, PLANNED_NAMES, 'Each limit')
    this.#ratelimit = planned ? planned.ratelimit : (given as Ratelimit | AnyCredits)
    const handle = handleOf(
      this.#ratelimit,
      'Each limiter must be a Ratelimit or Credits of this version of the package, or have a Ratelimit as `ratelimit`.',
    )
    const { rows, terms } = handle.checker
    checkOption(
      !handle.funded,
      'The dashboard shows one row of a key. Dated credits have a row for each grant.',
    )
    this.name = name
    this.prefix = rows.namespace.prefix
    this.isHashed = terms.hash !== undefined
    this.isCounted = terms.layers.some((layer) => layer.name === 'denials')
    this.isPrepaid = isPrepaid(terms.limiter)
    this.isLockout = terms.limiter.algorithm.numbers.block !== undefined
    this.isBlockable = this.isLockout || terms.blocks
    this.#handle = handle
    this.#limiterOf = planned?.limiterOf
    checkOption(
      planned === undefined || typeof planned.limiterOf === 'function',
      'limiterOf must be a function.',
    )
    if (planned) checkTakesLimiter(terms.limiter)
  }

  /** The key of the rows for a key that a person has typed. */
  async stored(key: string): Promise<string> {
    return this.#handle.checker.stored(key)
  }

  /** The keys that have used most. None for an unlimited plan, which has no rows. */
  async used(): Promise<(KeyUsage | OtherUsage)[]> {
    const ratelimit = this.#ratelimit
    if (this.#limiterOf && !('dated' in ratelimit))
      return usage(ratelimit, { top: TOP, limiterOf: this.#limiterOf })
    return this.#handle.checker.terms.limiter.stored ? usage(ratelimit, { top: TOP }) : []
  }

  async denied(): Promise<DeniedKey[]> {
    return denied(this.#ratelimit, { top: TOP })
  }

  /** The denials of the last hours: of a key, or of all. */
  async hours(key?: string): Promise<DeniedHour[]> {
    return deniedByHour(readingOf(this.#ratelimit), HOURS, key)
  }

  /** @throws RatelimitError the errors of `Ratelimit.getRemaining`. */
  async look(key: string): Promise<Usage> {
    const [usage] = await lookAll(this.#handle.checker, [await this.#call(key, 0)], undefined)
    return usage as Usage
  }

  /** @throws RatelimitError the errors of `Ratelimit.resetUsedTokens`. */
  async reset(key: string): Promise<void> {
    checkOption(!this.isPrepaid, 'Credits cannot be reset: that would give back used ones.')
    await reset(this.#handle.checker, await this.#call(key, 0), undefined)
  }

  /** @throws RatelimitError the errors of `Ratelimit.grant`. */
  async grant(key: string, amount: number): Promise<void> {
    await grant(this.#handle.checker, await this.#call(key, amount), undefined)
  }

  /** @throws RatelimitError the errors of `block`. */
  async block(key: string, duration: string): Promise<void> {
    // It is checked there.
    await blockKey(await this.#called(key), duration as Duration, undefined)
  }

  /** @throws RatelimitError the errors of `unblock`. */
  async unblock(key: string): Promise<void> {
    await unblockKey(await this.#called(key), undefined)
  }

  async #called(key: string): Promise<LimiterCall> {
    return { checker: this.#handle.checker, call: await this.#call(key, 0) }
  }

  async #call(key: string, rate: number): Promise<Call> {
    const own = this.#handle.checker.terms.limiter
    return callOf(this.prefix, own, key, { rate, limiter: (await this.#limiterOf?.(key)) ?? own })
  }
}
