// The rules of the algorithms, said as plainly as possible and without anything from src/. A state is brought forward to a
// time and asked one question: does this fit? Times and whole numbers are searched for with that question, never calculated.

/** The parameters of a limiter. */
export type Plan = BucketPlan | WindowPlan

export interface BucketPlan {
  readonly kind: 'bucket'
  readonly refill: 'interval' | 'continuous'
  readonly refillRate: number
  readonly intervalMs: number
  readonly maxTokens: number
  readonly initialTokens: number
}

export interface WindowPlan {
  readonly kind: 'sliding' | 'fixed'
  readonly tokens: number
  readonly windowMs: number
}

export interface ModelRemaining {
  readonly limit: number
  readonly remaining: number
  readonly reset: number
}

export interface ModelAnswer extends ModelRemaining {
  readonly success: boolean
  readonly retryAfter: number
}

/** One key of a limiter. It is told the time with each call. */
export class Model {
  #row: State | undefined

  limit(plan: Plan, clockMs: number, rate: number): ModelAnswer {
    const rules = rulesOf(plan)
    const { now, state, held } = view(rules, this.#row, clockMs)
    if (rate > 0 && !rules.fits(state, now, rate)) {
      // A bucket that starts with less than its whole limit has to start some time.
      if (!held && !isWhole(rules, state, now)) this.#row = state
      const ever = rules.fits(whole(rules, now), now, rate)
      const reset = ever
        ? firstFrom(now, (t) => rules.fits(rules.forward(state, t), t, rate))
        : Number.POSITIVE_INFINITY
      return { ...remainingOf(rules, state, now), success: false, reset, retryAfter: reset - now }
    }
    const next = rules.take(state, rate)
    if (rate > 0 || (rate < 0 && !isWhole(rules, state, now))) this.#row = next
    return { ...remainingOf(rules, next, now), success: true, retryAfter: 0 }
  }

  getRemaining(plan: Plan, clockMs: number): ModelRemaining {
    const rules = rulesOf(plan)
    const { now, state } = view(rules, this.#row, clockMs)
    return remainingOf(rules, state, now)
  }

  resetUsedTokens(plan: Plan, clockMs: number): void {
    const rules = rulesOf(plan)
    // Only a bucket that starts with less than its whole limit has anything to remember.
    this.#row = isWhole(rules, rules.fresh(clockMs), clockMs) ? undefined : whole(rules, clockMs)
  }
}

/** What is stored of a key; each kind uses its own amounts. */
interface State {
  readonly kind: Plan['kind']
  /** The time up to which refills are counted, or at which the current window began. */
  readonly at: number
  readonly tokens: number
  readonly count: number
  readonly previous: number
}

interface Rules {
  readonly kind: Plan['kind']
  readonly capacity: number
  /** The time in which nothing at all becomes the whole limit. */
  readonly periodMs: number
  fresh(at: number): State
  /** The state at `t`, which is not before it. */
  forward(state: State, t: number): State
  fits(state: State, t: number, rate: number): boolean
  take(state: State, rate: number): State
}

const EPSILON = 1e-9

function rulesOf(plan: Plan): Rules {
  if (plan.kind === 'bucket') return bucketRules(plan)
  return plan.kind === 'sliding' ? slidingRules(plan) : fixedRules(plan)
}

function bucketRules({ refill, refillRate, intervalMs, maxTokens, initialTokens }: BucketPlan): Rules {
  return {
    kind: 'bucket',
    capacity: maxTokens,
    periodMs:
      refill === 'interval'
        ? firstFrom(0, (intervals) => intervals * refillRate + EPSILON >= maxTokens) * intervalMs
        : firstFrom(0, (ms) => (ms * refillRate) / intervalMs + EPSILON >= maxTokens),
    fresh: (at) => ({ kind: 'bucket', at, tokens: initialTokens, count: 0, previous: 0 }),
    forward: (state, t) => {
      const passed = (t - state.at) / intervalMs
      const intervals = refill === 'interval' ? Math.floor(passed) : passed
      return {
        ...state,
        at: refill === 'interval' ? state.at + intervals * intervalMs : t,
        tokens: Math.min(state.tokens + intervals * refillRate, maxTokens),
      }
    },
    fits: ({ tokens }, _t, rate) => rate <= tokens + EPSILON,
    take: (state, rate) => ({ ...state, tokens: Math.min(state.tokens - rate, maxTokens) }),
  }
}

function fixedRules({ tokens, windowMs }: WindowPlan): Rules {
  const fresh = (at: number): State => ({ kind: 'fixed', at, tokens: 0, count: 0, previous: 0 })
  return {
    kind: 'fixed',
    capacity: tokens,
    periodMs: windowMs,
    fresh,
    forward: (state, t) => (t < state.at + windowMs ? state : fresh(t)),
    fits: ({ count }, _t, rate) => Math.min(count, tokens) + rate <= tokens,
    take: (state, rate) => ({ ...state, count: Math.max(state.count + rate, 0) }),
  }
}

function slidingRules({ tokens, windowMs }: WindowPlan): Rules {
  const fresh = (at: number): State => ({ kind: 'sliding', at, tokens: 0, count: 0, previous: 0 })
  return {
    kind: 'sliding',
    capacity: tokens,
    periodMs: windowMs,
    fresh,
    forward: (state, t) => {
      if (t < state.at + windowMs) return state
      if (t < state.at + 2 * windowMs) {
        return { ...state, at: state.at + windowMs, count: 0, previous: state.count }
      }
      return fresh(t)
    },
    // In requests times milliseconds, which are whole numbers however large.
    fits: ({ at, count, previous }, t, rate) => {
      const current = BigInt(Math.min(count, tokens) + rate) * BigInt(windowMs)
      const faded = BigInt(Math.min(previous, tokens)) * BigInt(at + windowMs - t)
      return current + faded <= BigInt(tokens) * BigInt(windowMs)
    },
    take: (state, rate) => {
      if (state.count + rate >= 0) return { ...state, count: state.count + rate }
      // More is given back than this window took: the rest comes out of the previous one.
      const rest = -rate - state.count
      return { ...state, count: 0, previous: Math.max(state.previous - rest, 0) }
    },
  }
}

interface View {
  readonly now: number
  readonly state: State
  /** Whether the state is that of a row. */
  readonly held: boolean
}

/** The time of a call and the state that it sees. */
function view(rules: Rules, row: State | undefined, clockMs: number): View {
  if (row?.kind !== rules.kind || row.at - clockMs > rules.periodMs) {
    return { now: clockMs, state: rules.fresh(clockMs), held: false }
  }
  const now = Math.max(clockMs, row.at)
  return { now, state: rules.forward(row, now), held: true }
}

/** As after giving back everything. */
function whole(rules: Rules, at: number): State {
  return rules.take(rules.fresh(at), -rules.capacity)
}

function isWhole(rules: Rules, state: State, t: number): boolean {
  return rules.fits(state, t, rules.capacity)
}

function remainingOf(rules: Rules, state: State, now: number): ModelRemaining {
  return {
    limit: rules.capacity,
    remaining: Math.max(firstFrom(0, (units) => !rules.fits(state, now, units)) - 1, 0),
    reset: firstFrom(now, (t) => isWhole(rules, rules.forward(state, t), t)),
  }
}

/** The first whole number, from `start` on, at which something begins to hold that then holds for good. */
function firstFrom(start: number, holds: (n: number) => boolean): number {
  if (holds(start)) return start
  let step = 1
  while (!holds(start + step)) step *= 2
  let below = start
  let holding = start + step
  while (holding - below > 1) {
    const middle = Math.floor((below + holding) / 2)
    if (holds(middle)) holding = middle
    else below = middle
  }
  return holding
}
