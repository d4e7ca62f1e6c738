import { drizzle } from 'drizzle-orm/node-postgres'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { Ratelimit } from '../../src/index.ts'
import { prefetch } from '../../src/prefetch/index.ts'
import { BEFORE, entryOf } from '../contenders/before.ts'
import { type Contender, makeKeys, type Opened, PERIOD_SECONDS, PLENTY } from '../contenders/contender.ts'
import { flexibleRedis, isAdmitted } from '../contenders/flexible.ts'
import { onNodePostgres, openedBy } from '../contenders/this-package.ts'
import { anyOf, keyNumbers } from '../measure.ts'
import { admitted, interleave } from '../rounds.ts'
import type { Connections } from '../server/connections.ts'
import { withNetwork } from '../server/network.ts'
import { MEMORY_STORE } from './denials.ts'
import { type Bench, type Figure, type Load, type Outcome, withDatabase } from './load.ts'

/** The end of the name of each whose stocks grow before it is measured. */
export const GROWING = 'prefetch'

export const PREFETCH: string = `drizzle-ratelimit, ${GROWING}`

const prefetching: Contender = {
  name: PREFETCH,
  async open({ pool }) {
    const ratelimit = new Ratelimit({
      db: drizzle({ client: pool }),
      limiter: Ratelimit.tokenBucket(PLENTY, '1h', PLENTY),
      prefix: 'prefetch',
      use: [prefetch({ tokens: 1_000, for: '10s', maxKeys: 20_000 })],
    })
    return { ...openedBy(ratelimit), close: () => ratelimit.close() }
  },
}

const SMALL = 'drizzle-ratelimit, prefetch of 50'

/** What the package exports. */
interface Package {
  readonly Ratelimit: typeof Ratelimit
  readonly prefetch: typeof prefetch
}

/** A limiter that prefetches less than what waits for a key. */
function smallStock(name: string, from: Package, prefix: string): Contender {
  return {
    name,
    async open({ pool }) {
      const ratelimit = new from.Ratelimit({
        db: drizzle({ client: pool }),
        limiter: from.Ratelimit.tokenBucket(PLENTY, '1h', PLENTY),
        prefix,
        use: [from.prefetch({ tokens: 50, for: '1s' })],
      })
      return { ...openedBy(ratelimit), close: () => ratelimit.close() }
    },
  }
}

async function crowdOf({ before }: Bench): Promise<readonly Contender[]> {
  const own = [smallStock(SMALL, { Ratelimit, prefetch }, 'small stocks'), onNodePostgres]
  if (!before) return own
  const old: Package = {
    ...(await import(entryOf(before).href)),
    ...(await import(entryOf(before, 'prefetch').href)),
  }
  return [...own, smallStock(BEFORE, old, 'small stocks before')]
}

/** Each caller makes many calls of one key in a turn, and waits for all of them. */
function inTurns({ check, ...opened }: Opened): Opened {
  const turn = async (key: string) => {
    const admitted = await Promise.all(Array.from({ length: CALLS_IN_TURN }, () => check(key)))
    return admitted.every((one) => one)
  }
  return { ...opened, check: turn }
}

const CALLS_IN_TURN = 50

/** Counts in this process alone. Nothing that answers from memory is much faster. */
const memoryStore: Contender = {
  name: MEMORY_STORE,
  store: 'elsewhere',
  async open() {
    const memory = new RateLimiterMemory({ points: PLENTY, duration: PERIOD_SECONDS })
    return {
      check: (key) => isAdmitted(memory.consume(key)),
      taken: async (key) => (await memory.get(key))?.consumedPoints ?? 0,
      close: async () => {},
    }
  },
}

/** After so many calls, a key's stock is of some hundred units. */
const GROWN = 100

interface Shape {
  readonly callers: number
  readonly keys: number
  readonly who: readonly Contender[]
  readonly comparedBy?: Figure
}

/** The limiter with prefetch, the one without, and what else answers a call. */
function everyone(): readonly Contender[] {
  return [prefetching, onNodePostgres, ...(process.env['REDIS_URL'] ? [flexibleRedis] : []), memoryStore]
}

export const PREFETCHING: readonly Load[] = [
  {
    name: 'prefetch-1-caller',
    title: 'prefetch, 1 caller, 1,000 keys',
    run: (bench) => direct(bench, { callers: 1, keys: 1_000, who: everyone(), comparedBy: 'p50Ms' }),
  },
  {
    name: 'prefetch-1000-keys',
    title: 'prefetch, 64 callers, 1,000 keys',
    run: (bench) => direct(bench, { callers: 64, keys: 1_000, who: everyone() }),
  },
  {
    name: 'prefetch-1-key',
    title: 'prefetch, 64 callers, 1 key',
    run: (bench) => direct(bench, { callers: 64, keys: 1, who: everyone() }),
  },
  {
    name: 'prefetch-10000-keys',
    title: 'prefetch, 256 callers, 10,000 keys',
    run: (bench) => direct(bench, { callers: 256, keys: 10_000, who: everyone() }),
  },
  {
    name: 'prefetch-crowd-1-key',
    title: 'prefetch of 50, 64 callers, 1 key',
    run: async (bench) => direct(bench, { callers: 64, keys: 1, who: await crowdOf(bench) }),
  },
  {
    name: 'prefetch-crowd',
    title: `prefetch of 50, 64 callers, 16 keys, turns of ${CALLS_IN_TURN} calls`,
    run: async (bench) => {
      const who = (await crowdOf(bench)).map((contender) => ({
        ...contender,
        open: async (connections: Connections) => inTurns(await contender.open(connections)),
      }))
      return direct(bench, { callers: 64, keys: 16, who })
    },
  },
  {
    name: 'prefetch-network',
    title: 'prefetch, 64 callers, 1,000 keys, 1 ms of network',
    run: (bench) =>
      withDatabase(bench, (_direct, url) =>
        withNetwork(url, 1, (connections) =>
          compare(bench, connections, { callers: 64, keys: 1_000, who: [prefetching, onNodePostgres] }),
        ),
      ),
  },
]

export function direct(bench: Bench, shape: Shape): Promise<Outcome> {
  return withDatabase(bench, (connections) => compare(bench, connections, shape))
}

async function compare(bench: Bench, connections: Connections, shape: Shape): Promise<Outcome> {
  const { callers, keys, who, comparedBy = 'perSecond' } = shape
  const { rounds } = bench.settings
  bench.progress.expect(rounds * who.length)
  const opened = await Promise.all(
    who.map(async (contender) => ({ ...contender, limiter: await contender.open(connections) })),
  )
  for (const { name, limiter } of opened) {
    bench.progress.prepare(name)
    // Stocks grow while a key is busy. What is measured is a process that has run for some time.
    const times = name.endsWith(GROWING) ? GROWN : 1
    for (let time = 0; time < times; time++) await makeKeys(limiter, keyNumbers(keys))
  }
  const entries = opened.map(({ name, store = 'postgres', limiter: { check } }) => {
    const serverCpu = store === 'postgres' ? bench.serverCpu : undefined
    // An answer from memory takes no longer than reading the clock. One caller is timed by ten checks.
    const timedTogether = callers === 1 ? 10 : 1
    return admitted(name, { check, key: anyOf(keys), callers, timedTogether, serverCpu }, bench.settings)
  })
  const measured = await interleave(entries, rounds, bench.progress)
  for (const { limiter } of opened) await limiter.close()
  return { measured, baseline: who[0]?.name ?? PREFETCH, comparedBy }
}
