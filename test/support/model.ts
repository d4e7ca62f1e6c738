// What every algorithm has in common, as plain as possible and without anything from src/. A state is brought
// forward to a time and asked one question: does this fit? Times and whole numbers are found by asking it again
// and again, and never calculated. The rules of each algorithm are in limits.ts.

/** What is stored of a key; each algorithm uses its own amounts. */
export interface State {
  /** The time up to which refills are counted, or at which the current window began. */
  readonly at: number
  readonly tokens: number
  readonly count: number
  readonly previous: number
}

/** A limit by the rules of its algorithm. */
export interface Rules {
  readonly capacity: number
  /** The time in which an empty limit becomes full. A row further ahead than that is wrong. */
  readonly periodMs: number
  fresh(at: number): State
  /** The state at `t`, which is not before it. */
  forward(state: State, t: number): State
  fits(state: State, t: number, rate: number): boolean
  /** The state after the rate is taken at `t`. */
  take(state: State, rate: number, t: number): State
  /** When the window began that the state is of, for windows. */
  readonly startOf?: (state: State) => number
  /** When the period is over that the state is of, for algorithms that have periods. */
  readonly endOf?: (state: State) => number
  /** Whether a state lasts longer than the limit can have written, for algorithms that block. */
  readonly isTooLong?: (state: State, clockMs: number) => boolean
  /** When the block of the state ends, for algorithms that block. It denies every call. */
  readonly blockedUntil?: (state: State) => number | undefined
  /** Whether rows say how much of what was used is reserved. */
  readonly reserves?: true
  /** How much can be taken at once. Default: the largest whole number that fits. */
  left?(state: State): number
  /** How much of the limit is used: more than there is, in debt. */
  used(state: State, t: number): number
}

/** A limit that the model knows. States of one algorithm are read by all its limits. */
export interface ModelPlan {
  readonly algorithm: string
  readonly rules: Rules
}

export interface ModelRemaining {
  readonly limit: number
  readonly remaining: number
  readonly reset: number
}

export interface ModelUsage extends ModelRemaining {
  readonly used: number
  /** When the block of the key ends. */
  readonly blockedUntil?: number
}

export interface ModelAnswer extends ModelRemaining {
  readonly success: boolean
  readonly retryAfter: number
  /** The period before this one, in the answer of the call that ends it. */
  readonly ended?: {
    readonly start: number
    readonly end: number
    readonly used: number
    readonly reserved?: number
  }
  readonly granted?: number
  readonly returned?: number
  /** When the block ends that the call has started, or that denies it. */
  readonly blockedUntil?: number
  /** When the window began that has paid. */
  readonly start?: number
}

/** The most that can be counted. */
export const MOST: number = 2 ** 53 - 1

/** One key of a limiter. Each call gives it the time. */
export class Model {
  #row: { readonly algorithm: string; readonly state: State } | undefined

  limit(
    plan: ModelPlan,
    clockMs: number,
    rate: number,
    { force = false, atLeast }: { force?: boolean; atLeast?: number | undefined } = {},
  ): ModelAnswer {
    const { rules } = plan
    const { now, state, held } = this.#view(plan, clockMs)
    if (atLeast !== undefined && rules.fits(state, now, atLeast)) {
      const wholes = () => firstFrom(0, (units) => !rules.fits(state, now, units)) - 1
      const granted = Math.min(rate, rules.left?.(state) ?? wholes())
      return { ...this.limit(plan, clockMs, granted), granted }
    }
    if (atLeast !== undefined) return this.limit(plan, clockMs, atLeast)
    const overflows = force && rate > 0 && rate > MOST - rules.used(state, now)
    const denied = rate > 0 && !force && !rules.fits(state, now, rate)
    // A bucket that does not start full begins to fill with its first check, even if that takes nothing.
    if ((overflows || denied) && !held && !isFull(rules, state, now)) this.#store(plan, state)
    if (overflows) throw new Error('COUNT_OVERFLOW')
    if (denied) {
      const ever = rules.fits(full(rules, now), now, rate)
      const reset = ever
        ? timeFrom(now, (t) => rules.fits(rules.forward(state, t), t, rate))
        : Number.POSITIVE_INFINITY
      const remaining = unitsOf(rules, state, now)
      const denial = { limit: rules.capacity, remaining, success: false, reset, retryAfter: reset - now }
      return { ...denial, ...blockOf(rules, state) }
    }
    if (rate === 0) return { ...this.#lookOf(plan, clockMs), success: true, retryAfter: 0 }
    const next = rules.take(state, rate, now)
    const until = rate > 0 ? rules.blockedUntil?.(next) : undefined
    const starts = until !== undefined && until !== rules.blockedUntil?.(state)
    const ended = rate > 0 ? this.#endedBy(plan, now) : {}
    if (rate > 0 || !isFull(rules, state, now)) this.#store(plan, next)
    // In a large debt a double loses fractions on the way.
    const returned =
      rate > 0 ? {} : { returned: Math.min(rules.used(state, now) - rules.used(next, now), -rate) }
    const payer = rate > 0 && rules.startOf ? { start: rules.startOf(next) } : {}
    return {
      ...remainingOf(rules, next, now),
      success: true,
      retryAfter: 0,
      ...ended,
      ...returned,
      ...payer,
      ...(starts ? { blockedUntil: until } : {}),
    }
  }

  #endedBy({ algorithm, rules }: ModelPlan, now: number): Pick<ModelAnswer, 'ended'> {
    const row = this.#row
    if (row?.algorithm !== algorithm || !rules.endOf) return {}
    const end = rules.endOf(row.state)
    const reserved = rules.reserves ? { reserved: 0 } : {}
    return end <= now ? { ended: { start: row.state.at, end, used: row.state.count, ...reserved } } : {}
  }

  getRemaining(plan: ModelPlan, clockMs: number): ModelUsage {
    const { now, state } = this.#view(plan, clockMs)
    return {
      ...this.#lookOf(plan, clockMs),
      used: plan.rules.used(state, now),
      ...blockOf(plan.rules, state),
    }
  }

  /** A limit that does not start full only fills once it is stored. */
  #lookOf(plan: ModelPlan, clockMs: number): ModelRemaining {
    const { rules } = plan
    const { now, state, held } = this.#view(plan, clockMs)
    const remaining = remainingOf(rules, state, now)
    const fills = held || isFull(rules, state, now)
    return { ...remaining, reset: fills ? remaining.reset : Number.POSITIVE_INFINITY }
  }

  /** When the window began that a call would be counted in, for windows. */
  startAt(plan: ModelPlan, clockMs: number): number | undefined {
    return plan.rules.startOf?.(this.#view(plan, clockMs).state)
  }

  resetUsedTokens(plan: ModelPlan, clockMs: number): void {
    const { rules } = plan
    this.#row = undefined
    // Without a row, a bucket that does not start full would have less than its limit.
    if (!isFull(rules, rules.fresh(clockMs), clockMs)) this.#store(plan, full(rules, clockMs))
  }

  #store({ algorithm }: ModelPlan, state: State): void {
    this.#row = { algorithm, state }
  }

  /** The time of a call, the state that it sees, and whether that is stored. */
  #view({ algorithm, rules }: ModelPlan, clockMs: number): { now: number; state: State; held: boolean } {
    const row = this.#row
    const isAhead = row && (row.state.at - clockMs > rules.periodMs || rules.isTooLong?.(row.state, clockMs))
    if (row?.algorithm !== algorithm || isAhead) {
      return { now: clockMs, state: rules.fresh(clockMs), held: false }
    }
    const now = Math.max(clockMs, row.state.at)
    return { now, state: rules.forward(row.state, now), held: true }
  }
}

function blockOf(rules: Rules, state: State): Pick<ModelUsage, 'blockedUntil'> {
  const blockedUntil = rules.blockedUntil?.(state)
  return blockedUntil === undefined ? {} : { blockedUntil }
}

/** The state after everything was given back. */
function full(rules: Rules, at: number): State {
  return rules.take(rules.fresh(at), -rules.capacity, at)
}

function isFull(rules: Rules, state: State, t: number): boolean {
  return rules.fits(state, t, Math.min(rules.capacity, MOST))
}

function remainingOf(rules: Rules, state: State, now: number): ModelRemaining {
  const limit = rules.capacity
  const until = rules.blockedUntil?.(state)
  if (limit === Number.POSITIVE_INFINITY) {
    return until === undefined
      ? { limit, remaining: limit, reset: now }
      : { limit, remaining: 0, reset: until }
  }
  const reset = timeFrom(now, (t) => isFull(rules, rules.forward(state, t), t))
  return { limit, remaining: unitsOf(rules, state, now), reset }
}

/** The first millisecond at which `holds`; never, if a number cannot tell it from the next one. */
function timeFrom(now: number, holds: (t: number) => boolean): number {
  const first = firstFrom(now, holds)
  return first > MOST ? Number.POSITIVE_INFINITY : first
}

/** The whole units that fit. */
function unitsOf(rules: Rules, state: State, now: number): number {
  return Math.max(firstFrom(0, (units) => !rules.fits(state, now, units)) - 1, 0)
}

/**
 * The first whole number from `start` on that `holds`. Every number after it has to hold as well. `Infinity` if
 * even the largest numbers do not hold.
 */
export function firstFrom(start: number, holds: (n: number) => boolean): number {
  if (holds(start)) return start
  let step = 1
  while (!holds(start + step)) {
    step *= 2
    if (step > MOST + 1) return Number.POSITIVE_INFINITY
  }
  let below = start
  let holding = start + step
  while (holding - below > 1) {
    const middle = Math.floor((below + holding) / 2)
    if (holds(middle)) holding = middle
    else below = middle
  }
  return holding
}
