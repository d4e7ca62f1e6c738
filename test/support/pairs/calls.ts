import { block, unblock } from 'drizzle-ratelimit/lockout'
import { denied, usage } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { expect } from 'vitest'
import { limitAll } from '../../../src/index.ts'
import {
  closePeriods,
  openReservations,
  reserveAll,
  settle,
  settleExpired,
  spend,
} from '../../../src/quota/index.ts'

// biome-ignore lint/suspicious/noExplicitAny: it gives calls what their types refuse.
export type Untyped = any

/** What calls are made on. */
export interface Ground {
  /** The limit that is tried. */
  readonly limit: string
  readonly quota: Untyped
  /** A limiter of its own that is never reached. */
  readonly other: Untyped
  readonly key: string
  readonly config: Untyped
  /** The plan that calls bring, if they bring one. */
  readonly plan: { readonly limiter?: Untyped }
  /** The units that the key may have. A grant adds to them. */
  capacity: number
  advance(ms: number): void
  inTransaction<T>(work: (tx: Untyped) => Promise<T>): Promise<T>
}

/** What a charge says that it has done. */
export interface Charged {
  readonly answer: Untyped
  /** The units that stay charged, and those that stay charged to the other limiter. */
  readonly kept: number
  readonly others: number
}

export interface Charge {
  /** What it gives back of the rate, if it was charged. */
  readonly givesBack?: number
  /** Whether the other limiter pays what this one lacks. */
  readonly isHelped?: boolean
  /** Whether it is stored under a name, also if a dry run lets it pass. */
  readonly isNamed?: boolean
  run(on: Ground, rate: number, words: Untyped, place: number): Promise<Charged>
}

function isCharged({ success, repeated, wouldDeny }: Untyped): boolean {
  return success && !repeated && !wouldDeny
}

function charged(answer: Untyped, rate: number, givesBack = 0, others = 0): Charged {
  const kept = isCharged(answer) ? (answer.granted ?? rate) - givesBack : 0
  return { answer, kept, others: answer.success && !answer.repeated ? others : 0 }
}

/** Splits the words of a list: those of each request, those of the call, and those of what settles it. */
function split({ tx, once, ...own }: Untyped): { own: Untyped; all: Untyped; settling: Untyped } {
  const settling = tx ? { tx } : {}
  return { own, all: { ...settling, ...(once ? { once } : {}) }, settling }
}

function requestsOn({ quota, other, key }: Ground, own: Untyped): Untyped[] {
  const rate = 'rate' in own ? { rate: own.rate } : {}
  return [
    { ratelimit: quota, key, ...own },
    { ratelimit: other, key, ...rate },
  ]
}

/** The answer of the first request of a list, with what the list says. */
function firstOf({ success, repeated, results }: Untyped): Untyped {
  return { ...results[0], success, ...(repeated ? { repeated } : {}) }
}

async function reserve(on: Ground, rate: number, words: Untyped, id?: string): Promise<Charged> {
  const { quota, key, plan } = on
  const name = id === undefined ? {} : { id, expires: '1d' }
  const reserved = await quota.reserve(key, { rate, ...words, ...name })
  const settling = { ...split(words).settling, ...plan }
  const actual = reserved.wouldDeny ? 0 : (reserved.granted ?? rate) - 1
  if (reserved.success && id) await quota.settle({ key, id }, actual, settling)
  else if (reserved.success && !reserved.repeated) await reserved.commit(actual, settling)
  return charged(reserved, rate, 1)
}

async function reserveBoth(on: Ground, rate: number, words: Untyped, id?: string): Promise<Charged> {
  const { own, all, settling } = split(words)
  const name = id === undefined ? {} : { id, expires: '1d' }
  const reserved: Untyped = await reserveAll(requestsOn(on, { rate, ...own }), { ...all, ...name })
  const answer = firstOf(reserved)
  const actual = [answer.wouldDeny ? 0 : (answer.granted ?? rate) - 1, rate]
  if (answer.success && id) await settle(requestsOn(on, on.plan), id, { actual, ...settling })
  else if (answer.success && !answer.repeated) await reserved.commit(actual, settling)
  return charged(answer, rate, 1, rate)
}

/** The calls that charge. */
export const CHARGES: Readonly<Record<string, Charge>> = {
  limit: {
    run: async ({ quota, key }, rate, words) => charged(await quota.limit(key, { rate, ...words }), rate),
  },
  'rate below 0': {
    givesBack: 1,
    run: async ({ quota, key, plan }, rate, words) => {
      const answer = await quota.limit(key, { rate, ...words })
      const back = { rate: -1, ...plan, ...split(words).settling }
      if (isCharged(answer)) expect(await quota.limit(key, back)).toMatchObject({ success: true })
      return charged(answer, rate, 1)
    },
  },
  limitAll: {
    run: async (on, rate, words) => {
      const { own, all } = split(words)
      return charged(firstOf(await limitAll(requestsOn(on, { rate, ...own }), all)), rate, 0, rate)
    },
  },
  'limitAll with wait': {
    run: async (on, rate, words) => {
      const { own, all } = split(words)
      const waited = await limitAll(requestsOn(on, { rate, ...own }), { ...all, wait: 0 })
      return charged(firstOf(waited), rate, 0, rate)
    },
  },
  reserve: { givesBack: 1, run: (on, rate, words) => reserve(on, rate, words) },
  'reserve with id': {
    ...{ givesBack: 1, isNamed: true },
    run: (on, rate, words, place) => reserve(on, rate, words, `job ${place}`),
  },
  reserveAll: { givesBack: 1, run: (on, rate, words) => reserveBoth(on, rate, words) },
  'reserveAll with id': {
    ...{ givesBack: 1, isNamed: true },
    run: (on, rate, words, place) => reserveBoth(on, rate, words, `job ${place}`),
  },
  spend: {
    isHelped: true,
    run: async (on, rate, { limiter, force, ...all }) => {
      const own = { ...(limiter ? { limiter } : {}), ...(force ? { force } : {}) }
      const spent: Untyped = await spend(requestsOn(on, own), { rate, ...all })
      const answer = { ...firstOf(spent), granted: spent.granted[0] }
      return charged(answer, rate, 0, spent.granted[1])
    },
  },
  blockUntilReady: {
    run: async ({ quota, key }, rate, words) =>
      charged(await quota.blockUntilReady(key, 0, { rate, ...words }), rate),
  },
  schedule: {
    run: async ({ quota, key }, rate, words) =>
      charged(await schedule(quota, key, { within: 0, rate, ...words }), rate),
  },
}

/** Any other call, after charges. It returns the units that are charged then. */
export type Act = (on: Ground, used: number) => Promise<number>

/** The units that are charged after one more. */
function oneMore({ limit }: Ground, used: number): number {
  return limit === 'unlimited' ? used : used + 1
}

export const ACTS: Readonly<Record<string, Act>> = {
  getRemaining: async ({ quota, key, plan, capacity: limit }, used) => {
    const remaining = Math.max(limit - used, 0)
    expect(await quota.getRemaining(key, plan)).toMatchObject({ limit, remaining, used })
    return used
  },
  getRemainingAll: async ({ quota, key, plan }, used) => {
    expect(await quota.getRemainingAll([key, 'new', key], plan)).toMatchObject([
      { used },
      { used: 0 },
      { used },
    ])
    return used
  },
  usage: async ({ quota, plan }, used) => {
    const options: Untyped = plan.limiter ? { limiterOf: () => plan.limiter } : {}
    const list = await usage(quota, options)
    expect(list.map((each) => each.used)).toEqual([used])
    return used
  },
  denied: async ({ quota }, used) => {
    expect(await denied(quota)).toEqual([])
    return used
  },
  resetUsedTokens: async ({ quota, key, plan }) => {
    await quota.resetUsedTokens(key, plan)
    return 0
  },
  cleanup: async ({ quota }, used) => {
    expect(await quota.cleanup()).toBe(0)
    return used
  },
  grant: async (on, used) => {
    const { limit, quota, key, capacity } = on
    const more = limit === 'Credits' ? { once: { id: 'more', for: '1d' } } : { id: 'more' }
    const options = limit === 'dated' || limit === 'Credits' ? more : {}
    expect(await quota.grant(key, 5, options)).toMatchObject({ limit: capacity + 5 })
    expect(await quota.grant(key, 5, options)).toMatchObject({ limit: capacity + 5, repeated: true })
    on.capacity += 5
    const amounts = (await quota.grants(key)).map(({ amount }: Untyped) => amount)
    expect(amounts.reduce((sum: number, amount: number) => sum + amount, 0)).toBe(on.capacity)
    if (limit === 'dated') {
      await quota.grant(key, 2, { id: 'void' })
      expect(await quota.voidGrant(key, 'void')).toBe(2)
    }
    return used
  },
  block: async (on, used) => {
    const { quota, key, plan } = on
    await block(quota, key, '30m')
    const blocked = { success: false, blockedUntil: expect.any(Number) }
    expect(await quota.limit(key, plan)).toMatchObject(blocked)
    await unblock(quota, key)
    expect(await quota.limit(key, plan)).toMatchObject({ success: true })
    return on.limit === 'lockout' ? 1 : oneMore(on, used)
  },
  openReservations: async (on, used) => {
    const { quota, key, plan } = on
    await quota.reserve(key, { rate: 1, id: 'job', expires: '1d', ...plan })
    expect(await openReservations(quota)).toHaveLength(1)
    return oneMore(on, used)
  },
  settleExpired: async (on, used) => {
    const { quota, key, plan, advance, inTransaction } = on
    await quota.reserve(key, { rate: 1, id: 'job', expires: '1s', ...plan })
    advance(1000)
    const options = { as: 'release', ...(plan.limiter ? { limiterOf: () => plan.limiter } : {}) }
    expect(await inTransaction((tx) => settleExpired(quota, { tx, ...options } as Untyped))).toHaveLength(1)
    return used
  },
  changePlan: async ({ quota, key, config, plan }, used) => {
    const from = plan.limiter ?? config.limiter
    expect(await quota.changePlan(key, { from, to: config.limiter })).toMatchObject({ used })
    return 0
  },
  closePeriods: async (on, used) => {
    expect(await on.inTransaction((tx) => closePeriods(on.quota, { tx }))).toEqual([])
    return used
  },
}
