import { countDenials } from 'drizzle-ratelimit/denials'
import { block, blocks, lockout, unblock } from 'drizzle-ratelimit/lockout'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { denied } from 'drizzle-ratelimit/reports'
import { schedule } from 'drizzle-ratelimit/schedule'
import { calendarWindow } from '../../src/calendar/index.ts'
import { Credits } from '../../src/credits/index.ts'
import { Limit } from '../../src/dashboard/limit.ts'
import { limitAll, Ratelimit, RatelimitError } from '../../src/index.ts'
import { closePeriods, Quota, reserveAll, settle, settleExpired, spend } from '../../src/quota/index.ts'
import { Semaphore } from '../../src/semaphore/index.ts'
import { type Call, callOn, keys, NOW } from './calls.ts'

// Calls of limiters and options that not every limiter has.

type Placed = Pick<Call, 'laid' | 'db' | 'prefix'>

/** What a test calls and compares. */
type Run = (placed: Placed) => Promise<unknown>

const monthly = calendarWindow(20, 'month')
const yearly = calendarWindow(500, 'year')
const rolling = calendarWindow(20, 'month', { rollover: { max: 5 } })
const later = new Date(NOW.getTime() + 40 * 86_400_000)
const AN_HOUR_LATER = new Date(NOW.getTime() + 3_600_000)

function optionsOf({ laid: { tables, use }, db, prefix }: Placed, at: Date = NOW) {
  return { db, tables, use, prefix, clock: () => at }
}

export const ownCalls: Readonly<Record<string, Run>> = {
  'once, one key': async (placed) => {
    const { a } = callOn(placed.laid, placed.db, monthly, placed.prefix)
    const once = { id: 'event', for: '1d' } as const
    return [await a.limit('k', { once }), await a.limit('k', { once }), await a.getRemaining('k')]
  },
  'once, denied': async (placed) => {
    const { a } = callOn(placed.laid, placed.db, monthly, placed.prefix)
    const once = { id: 'event', for: '1d' } as const
    return [await a.limit('k', { rate: 99, once }), await a.limit('k', { once }), await a.getRemaining('k')]
  },
  'once, a list over shards': async (placed) => {
    const { a, b } = callOn(placed.laid, placed.db, monthly, placed.prefix)
    const charge = () =>
      limitAll(
        keys.map((key, place) => ({ ratelimit: place % 2 ? a : b, key })),
        { once: { id: 'event', for: '1d' } },
      )
    const [{ success, repeated }, again] = [await charge(), await charge()]
    return [success, repeated, again.success, again.repeated, await a.getRemainingAll(keys)]
  },
  'a list over shards with force and a denial': async (placed) => {
    const { a, b } = callOn(placed.laid, placed.db, monthly, placed.prefix)
    const charge = async (rate: number) =>
      (
        await limitAll([
          { ratelimit: a, key: 'k0', rate: 50, force: true },
          { ratelimit: b, key: 'k1', rate },
        ])
      ).success
    return [await charge(21), await charge(20), await a.getRemaining('k0'), await b.getRemaining('k1')]
  },
  'grant, spend and reset of a balance': async (placed) => {
    const credits = new Credits({ ...optionsOf(placed), durable: true })
    return [
      await credits.grant('k', 7),
      await credits.limit('k', { rate: 5 }),
      await credits.limit('k', { rate: 5 }),
      await credits.grant('k', 3, { once: { id: 'paid', for: '1d' } }),
      await credits.grant('k', 3, { once: { id: 'paid', for: '1d' } }),
    ]
  },
  'a lockout': async (placed) => {
    const limiter = lockout(3, '1h', { block: '5m' })
    const logins = new Ratelimit({ ...optionsOf(placed), limiter })
    const answers: unknown[] = []
    for (let i = 0; i < 4; i++) answers.push(await logins.limit('k'))
    return [
      ...answers,
      await block(logins, 'other', '1h'),
      await unblock(logins, 'k'),
      await logins.limit('k'),
    ]
  },
  'keys that are blocked': async (placed) => {
    const api = new Ratelimit({
      ...{ ...optionsOf(placed), limiter: monthly },
      use: [...placed.laid.use, blocks()],
    })
    return [
      await api.limit('k'),
      await block(api, 'k', '1h'),
      await api.limit('k'),
      await Promise.all(keys.map((key) => api.limit(key))),
      await unblock(api, 'k'),
      await api.limit('k'),
    ]
  },
  'schedule and cancel': async (placed) => {
    const line = new Ratelimit({ ...optionsOf(placed), limiter: Ratelimit.gcra(60, '1m', { burst: 1 }) })
    const turns = []
    for (let i = 0; i < 3; i++) turns.push(await schedule(line, 'k', { within: '1m' }))
    const last = turns[2]
    if (last?.success) await last.cancel()
    const again = await schedule(line, 'k', { within: '1m' })
    return [...turns, again].map((turn) => turn.success && [turn.delay, turn.startsAt])
  },
  'denials, and the list of them': async (placed) => {
    const { db, laid, prefix } = placed
    const counted = new Ratelimit({
      ...{ ...optionsOf(placed), limiter: Ratelimit.fixedWindow(1, '1m') },
      use: [...laid.use, countDenials()],
    })
    for (const key of keys) await counted.limit(key)
    for (const key of keys.slice(2)) await counted.limit(key)
    await counted.limit('k7')
    await counted.close()
    return denied({ db, prefix, tables: laid.tables, durable: false, clock: () => NOW }, { top: 1 })
  },
  'the list of the page for operators, by plan': async (placed) => {
    const { a } = callOn(placed.laid, placed.db, monthly, placed.prefix)
    await Promise.all(keys.map((key) => a.limit(key, { rate: 1 + Number(key.slice(1)) })))
    const limit = new Limit('api', { ratelimit: a, limiterOf: () => monthly })
    return limit.keys({ part: '', offset: 0, size: 50, now: await limit.now() })
  },
  'prefetch, given back': async (placed) => {
    const use = [...placed.laid.use, prefetch({ tokens: 5, for: '1s' })]
    const prefetching = new Ratelimit({ ...optionsOf(placed), limiter: monthly, use })
    const passed = []
    for (let i = 0; i < 8; i++) passed.push((await prefetching.limit('k')).success)
    await prefetching.close()
    return [passed, (await prefetching.getRemaining('k')).used]
  },
  'a rollover': async (placed) => {
    const first = new Quota({ ...optionsOf(placed), limiter: rolling, durable: true })
    const second = new Quota({ ...optionsOf(placed, later), limiter: rolling, durable: true })
    return [
      await first.limit('k', { rate: 4 }),
      await second.getRemaining('k'),
      await second.limit('k', { rate: 24 }),
      await second.limit('k', { rate: 2 }),
    ]
  },
  'a rollover, handed out': async (placed) => {
    const { db } = placed
    const quota = { limiter: rolling, durable: true, keepEnded: true } as const
    const first = new Quota({ ...optionsOf(placed), ...quota })
    await Promise.all(keys.map((key) => first.limit(key, { rate: 17 })))
    const second = new Quota({ ...optionsOf(placed, later), ...quota })
    const closed = await outcomeOf(() => db.transaction((tx) => closePeriods(second, { tx })))
    return [closed, await second.getRemainingAll(keys)]
  },
  'a change of the plan': async (placed) => {
    const quota = new Quota({
      ...{ ...optionsOf(placed), limiter: monthly },
      ...{ durable: true, keepEnded: true },
    })
    return [
      await quota.limit('k', { rate: 4 }),
      await outcomeOf(() => quota.changePlan('k', { to: yearly })),
      await quota.getRemaining('k', { limiter: yearly }),
      await outcomeOf(() => quota.changePlan('new', { to: yearly })),
    ]
  },
  'reserve with an id, settled by other processes': async (placed) => {
    const quotaAt = () => new Quota({ ...optionsOf(placed), limiter: monthly, durable: true })
    const answers = []
    for (const [place, actual] of [0, 2, 3, 8].entries()) {
      const key = `k${place}`
      const reserved = await quotaAt().reserve(key, { rate: 3, id: 'job', expires: '1h' })
      const again = await quotaAt().reserve(key, { rate: 3, id: 'job', expires: '1h' })
      answers.push([reserved.success, again.success && again.repeated])
      for (const cost of [actual, actual, actual + 1])
        answers.push(await outcomeOf(() => quotaAt().settle({ key, id: 'job' }, cost)))
    }
    return [answers, await quotaAt().getRemainingAll(keys)]
  },
  'a name over shards': async (placed) => {
    const quota = new Quota({ ...optionsOf(placed), limiter: monthly, durable: true })
    const bucket = new Quota({
      ...{ ...optionsOf(placed), prefix: `${placed.prefix} bucket`, durable: true },
      limiter: Ratelimit.tokenBucket(5, '10s', 20),
    })
    const requests = [
      { ratelimit: quota, key: 'k0' },
      { ratelimit: bucket, key: 'k3' },
    ]
    const reserved = await reserveAll(
      requests.map((each) => ({ ...each, rate: 4 })),
      { id: 'both', expires: '1h' },
    )
    const settled = (await settle(requests, 'both', { actual: [1, 6] })).results
    const spent = await spend(requests, { rate: 20, id: 'spent', expires: '1h' })
    const settledSpent = await settle(requests, 'spent', { actual: 7 })
    return [reserved.results, settled, spent.results, settledSpent]
  },
  settleExpired: async (placed) => {
    const quota = new Quota({ ...optionsOf(placed), limiter: monthly, durable: true })
    for (const key of keys) await quota.reserve(key, { rate: 3, id: 'job', expires: '1h' })
    const after = new Quota({ ...optionsOf(placed, AN_HOUR_LATER), limiter: monthly, durable: true })
    const ended = await outcomeOf(() =>
      placed.db.transaction((tx) => settleExpired(after, { tx, as: 'release' })),
    )
    return [ended, await after.getRemainingAll(keys)]
  },
}

/** Takes three slots of two. Limits of work have no option for tables that are distributed by key. */
export async function takeSlots(placed: Placed): Promise<unknown[]> {
  const { use: _, ...options } = optionsOf(placed)
  const jobs = new Semaphore({ ...options, limit: 2, lease: '30s', durable: false })
  const answers: unknown[] = []
  for (let i = 0; i < 3; i++) answers.push(await outcomeOf(async () => (await jobs.acquire('k')).success))
  return answers
}

/** The answer, or what the error says. */
async function outcomeOf(work: () => Promise<unknown>): Promise<unknown> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof RatelimitError) return [error.code, error.sqlState]
    throw error
  }
}
