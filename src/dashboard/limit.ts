import type { AnyCredits } from '../any-credits.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { handleIn } from '../kernel/engine/handles.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { checkOption, checkTakesLimiter } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { type DeniedAsked, type DeniedKey, deniedOver, deniedPage } from '../reports/denied.ts'
import type { PlanOf } from '../shared/limiter-rows.ts'
import { timeOf } from '../shared/number-columns.ts'
import { readingIn } from '../shared/read-rows.ts'
import {
  type Act,
  type Held,
  type Holding,
  type KeysAsked,
  type ShownKey,
  type ShownKeys,
  type ShownParts,
  shownIn,
} from '../shared/shown.ts'
import { actsOf } from './acts.ts'
import type { AnySemaphore } from './any-semaphore.ts'
import type { DenialTimes } from './denials.ts'
import { inTime } from './in-time.ts'
import { inWords } from './in-words.ts'
import { blockedKeys, type KeyRows, lookAtKey, nearestKeys, presentPlan } from './keys.ts'
import { openReservationsOf, reservationActs } from './reservations.ts'

/** A limit of the page whose keys have plans. */
export interface PlannedLimit {
  /** The limiter. */
  readonly ratelimit: Ratelimit
  /** The limit of a key as it is stored: its customer's plan. */
  readonly limiterOf: PlanOf
}

/** What the page shows. */
type Shows = Ratelimit | AnyCredits | AnySemaphore | PlannedLimit

const PLANNED_NAMES: NamesOf<PlannedLimit> = { ratelimit: true, limiterOf: true }

/** Its hash tells secrets apart. */
const PROBE = 'the secret of drizzle-ratelimit/dashboard'

/** What charts have. */
const CHARTED = { hours: 24, minutes: 60 }

/** A limit as the page reads and changes it. Keys are those of the rows: with `hashKeys`, the hashes. */
export class Limit {
  readonly name: string
  readonly prefix: string
  /** Whether keys are stored as hashes. */
  readonly isHashed: boolean
  /** Whether denials are counted. */
  readonly isCounted: boolean
  /** Whether they could be: what is no limiter has no `use`. */
  readonly canCount: boolean
  readonly checker: Checker
  /** Undefined if the object shows rows of its own only. */
  readonly #rows: KeyRows | undefined
  readonly #load: () => Promise<ShownParts>

  /** @throws RatelimitError `INVALID_OPTION` */
  constructor(name: string, given: Shows) {
    const planned = typeof given === 'object' && given !== null && 'ratelimit' in given ? given : undefined
    if (planned) checkOptions(planned, PLANNED_NAMES, 'Each limit')
    const object = planned ? planned.ratelimit : given
    const [handle, shown] = [handleIn(object), shownIn(object)]
    const checker = handle?.checker ?? shown?.checker
    checkOption(
      checker !== undefined,
      'Each limiter must be a Ratelimit, Credits or a Semaphore of this version of the package, or have a Ratelimit as `ratelimit`.',
    )
    checkOption(
      planned === undefined || typeof planned.limiterOf === 'function',
      'limiterOf must be a function.',
    )
    const { rows, terms } = checker
    if (planned) checkTakesLimiter(terms.limiter)
    this.name = name
    this.prefix = rows.namespace.prefix
    this.isHashed = terms.hash !== undefined
    this.isCounted = terms.layers.some((layer) => layer.name === 'denials')
    this.canCount = handle !== undefined
    this.checker = checker
    this.#rows = handle && { handle, limiterOf: planned?.limiterOf }
    this.#load = async () => (await shown?.load()) ?? {}
  }

  /** The key of the rows for a key that a person has typed. */
  async stored(key: string): Promise<string> {
    return this.checker.stored(key)
  }

  /** What limits have in common that hash keys with the same secret. Undefined if keys are stored as such. */
  async hashedBy(): Promise<string | undefined> {
    return this.isHashed ? (await this.checker.stored(PROBE)).slice(0, 16) : undefined
  }

  /** The time by which the limit decides. */
  async now(): Promise<number> {
    const { db, clock } = readingIn(this.checker)
    return this.#read(() => timeOf(db, clock))
  }

  /** The rule in words, of a key or of all. */
  async rule(now: number, written: (time: number) => string, key?: string): Promise<string> {
    const { limiterOf } = this.#rows ?? {}
    const { limiter, reporting } = this.checker.terms
    const own = limiterOf ? key !== undefined && (await presentPlan(limiterOf, key)) : limiter
    const rule = own ? ((await this.#load()).rule ?? inWords(own, now, written)) : 'each key by its plan'
    return reporting.dryRun ? `${rule}, a dry run: what it denies passes` : rule
  }

  /** The keys nearest to their limit. */
  async keys(asked: KeysAsked): Promise<ShownKeys> {
    const { keys } = await this.#load()
    return this.#read(async () => {
      if (keys) return keys(asked)
      return this.#rows ? nearestKeys(this.#rows, asked) : NO_KEYS
    })
  }

  /** Undefined if the key has no row. */
  async look(key: string, now: number): Promise<ShownKey | undefined> {
    const { look } = await this.#load()
    return this.#read(async () => (look ? look(key, now) : this.#rows && lookAtKey(this.#rows, key)))
  }

  /** The keys that are blocked. Undefined if none can be. */
  async blocked(now: number, size: number): Promise<Held[] | undefined> {
    return this.#read(() => blockedKeys(this.checker, now, size))
  }

  /** What keys hold for a time. */
  async holdings(): Promise<readonly Holding[]> {
    const { holdings = [] } = await this.#load()
    const all = this.#rows ? [...holdings, openReservationsOf(this.checker)] : holdings
    return all.map((holding) => {
      return { ...holding, list: (asked) => this.#read(() => holding.list(asked)) }
    })
  }

  /** What can be done with a key. */
  async acts(): Promise<readonly Act[]> {
    const { acts = [] } = await this.#load()
    return this.#rows ? [...acts, ...(await actsOf(this.#rows)), ...reservationActs(this.#rows)] : acts
  }

  /** The keys that were denied most since a time. */
  async denied(asked: DeniedAsked): Promise<{ readonly keys: DeniedKey[]; readonly total: number }> {
    return this.#read(() => deniedPage(readingIn(this.checker), asked))
  }

  /** The denials of the last hours and minutes, of a key or of all. Undefined if they are not counted. */
  async denials(now: number, key?: string): Promise<DenialTimes | undefined> {
    if (!this.isCounted) return undefined
    const asked = { ...CHARTED, now, ...(key === undefined ? {} : { key }) }
    return this.#read(() => deniedOver(readingIn(this.checker), asked))
  }

  #read<T>(read: () => Promise<T>): Promise<T> {
    return inTime(this.checker, read)
  }
}

/** What was read of one limit. If that is not possible, the others are still shown, and why it is not. */
export async function orFault<T>(read: () => Promise<T>, otherwise: (fault: string) => T): Promise<T> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof RatelimitError) return otherwise(faultOf(error))
    throw error
  }
}

export function faultOf({ code, message }: RatelimitError): string {
  return `${code}: ${message}`
}

const NO_KEYS: ShownKeys = { keys: [], total: 0, full: 0 }
