import { firstFrom, Model, type ModelPlan } from './model.ts'

// What one cost over several limits is: the first pays what it has, the next pays the rest. Nothing here is
// from src/.

/** By then every limit is full. */
const FAR_MS = 10 * 365 * 86_400_000

/** What one limit has paid of a cost. */
interface Payment {
  readonly units: number
  /** Whether it can still be given back at the time. */
  isRefundable(at: number): boolean
}

/** A limit that pays a part of a cost. */
export interface PayingModel {
  /** What it could pay at the time: whole units, or everything. */
  has(at: number, isWhole: boolean): number
  pay(at: number, units: number): Payment
  /** Returns how much came back. */
  giveBack(at: number, units: number): number
  /** How much of it is used at the time. */
  used(at: number): number
}

/** A limit of the model. */
export class LimitModel implements PayingModel {
  readonly #plan: ModelPlan
  readonly #model = new Model()

  constructor(plan: ModelPlan) {
    this.#plan = plan
  }

  has(at: number, isWhole: boolean): number {
    const { remaining, limit, used } = this.#model.getRemaining(this.#plan, at)
    return isWhole ? remaining : Math.max(limit - used, 0)
  }

  pay(at: number, units: number): Payment {
    if (units === 0) return { units, isRefundable: () => false }
    const { start, reset } = this.#model.limit(this.#plan, at, units, { force: true })
    // A bucket is full again by itself at its reset.
    const isRefundable = (later: number) =>
      start === undefined ? later < reset : this.#model.startAt(this.#plan, later) === start
    return { units, isRefundable }
  }

  giveBack(at: number, units: number): number {
    return this.#model.limit(this.#plan, at, -units).returned ?? 0
  }

  used(at: number): number {
    return this.#model.getRemaining(this.#plan, at).used
  }
}

/** A balance: no time changes it. */
export class BalanceModel implements PayingModel {
  granted = 0
  #used = 0

  has(): number {
    return Math.max(this.granted - this.#used, 0)
  }

  pay(_at: number, units: number): Payment {
    this.#used += units
    return { units, isRefundable: () => true }
  }

  giveBack(_at: number, units: number): number {
    this.#used -= units
    return units
  }

  used(): number {
    return this.#used
  }
}

/** A cost that several limits have paid. */
export type PaidCost = readonly Payment[]

/** Several limits that pay costs together, the first first. */
export class SpendModel {
  readonly #sources: readonly PayingModel[]
  readonly #isWhole: boolean

  constructor(sources: readonly PayingModel[], isWhole: boolean) {
    this.#sources = sources
    this.#isWhole = isWhole
  }

  /** Undefined if they do not have the least together. */
  spend(at: number, rate: number, least: number): PaidCost | undefined {
    if (this.#left(at) + 1e-9 < least) return undefined
    return this.#pay(at, this.#shares(at, rate).shares)
  }

  /** Milliseconds until they have the least together. */
  retryAfter(at: number, least: number): number {
    const isEnough = (later: number) => this.#left(later) + 1e-9 >= least
    return isEnough(at + FAR_MS) ? firstFrom(at, isEnough) - at : Number.POSITIVE_INFINITY
  }

  /** What each has paid in the end. */
  commit(at: number, paid: PaidCost, actual: number, debt: 'first' | 'last'): readonly number[] {
    const units = paid.map((each) => each.units)
    const missing = actual - sum(units)
    if (missing > 0) {
      const { shares, rest } = this.#shares(at, missing)
      const debtor = debt === 'first' ? 0 : shares.length - 1
      const more = shares.map((share, place) => (place === debtor ? share + rest : share))
      this.#pay(at, more)
      return units.map((each, place) => each + (more[place] ?? 0))
    }
    let rest = 0 - missing
    const kept = [...units]
    for (let place = units.length - 1; place >= 0; place--) {
      const part = Math.min(units[place] ?? 0, rest)
      rest -= part
      if (part === 0 || !paid[place]?.isRefundable(at)) continue
      kept[place] = (units[place] ?? 0) - (this.#sources[place]?.giveBack(at, part) ?? 0)
    }
    return kept
  }

  #left(at: number): number {
    return sum(this.#sources.map((source) => source.has(at, this.#isWhole)))
  }

  #shares(at: number, rate: number): { readonly shares: number[]; readonly rest: number } {
    let rest = rate
    const shares = this.#sources.map((source) => {
      const share = Math.min(source.has(at, this.#isWhole), rest)
      rest -= share
      return share
    })
    return { shares, rest: rest < 1e-9 ? 0 : rest }
  }

  #pay(at: number, shares: readonly number[]): PaidCost {
    return this.#sources.map((source, place) => source.pay(at, shares[place] ?? 0))
  }
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, amount) => total + amount, 0)
}
