import { beforeAll, expect, test } from 'vitest'
import { type Limiter, type LimitResult, Ratelimit, type RatelimitConfig } from '../../src/index.ts'
import { useDatabase } from '../support/databases.ts'
import { examples } from '../support/limits.ts'
import { times } from '../support/runs.ts'

// Slow: a race needs many calls of many connections to show.

const CONNECTIONS = 32
const database = useDatabase()

let connections: ReturnType<typeof database.connect>[]
beforeAll(() => {
  connections = Array.from({ length: CONNECTIONS }, () => database.connect(1))
})

/**
 * Limiters that share nothing but the tables, each with a connection of its own, as separate processes would.
 */
function processes(limiter: Limiter, prefix: string, config: Partial<RatelimitConfig> = {}): Ratelimit[] {
  const common = { limiter, prefix, cleanupProbability: 0, timeout: false, ...config }
  return connections.map(({ db }) => new Ratelimit({ ...common, db } as RatelimitConfig))
}

function allowed(answers: readonly LimitResult[]): LimitResult[] {
  return answers.filter(({ success }) => success)
}

/** Every algorithm, and one without coalescing, which sends the same statements. */
const ONE_KEY = [
  ...examples.map((example) => ({ ...example, coalesce: true })),
  ...examples.slice(0, 1).map((example) => ({ ...example, coalesce: false })),
]

test.each(ONE_KEY)(
  '32 connections on one key get exactly the limit, each grant with a count of its own: $name, coalesce $coalesce',
  async ({ name, of, coalesce }) => {
    const { limiter } = of(50, '1h')
    const answers = await Promise.all(
      processes(limiter, `one key, ${coalesce} ${name}`, { coalesce }).map(async (ratelimit) => {
        const own: LimitResult[] = []
        for (let i = 0; i < 4; i++) own.push(await ratelimit.limit('key'))
        return own
      }),
    )
    const granted = allowed(answers.flat())
    expect(granted).toHaveLength(50)
    expect(granted.map(({ remaining }) => remaining).sort((a, b) => a - b)).toEqual([...Array(50).keys()])
  },
)

test.each([true, false])(
  '32 connections on new keys get exactly 5 on each, coalesce %s',
  async (coalesce) => {
    const all = processes(Ratelimit.fixedWindow(5, '1h'), `fresh keys, ${coalesce}`, { coalesce })
    const keys = Array.from({ length: times(30) }, (_, i) => `key ${i}`)
    const counts: number[] = []
    for (const key of keys) {
      const answers = await Promise.all(all.map((ratelimit) => ratelimit.limit(key)))
      counts.push(allowed(answers).length)
    }
    expect(new Set(counts)).toEqual(new Set([5]))
  },
)

test.each([true, false])(
  '32 connections on many new keys at once get exactly 5 on each, coalesce %s',
  async (coalesce) => {
    const all = processes(Ratelimit.fixedWindow(5, '1h'), `fresh keys at once, ${coalesce}`, { coalesce })
    const keys = Array.from({ length: times(40) }, (_, i) => `key ${i}`)
    const answers = await Promise.all(
      all.map((ratelimit, turn) => {
        const mine = turn % 2 === 0 ? keys : keys.toReversed()
        return Promise.all(mine.map(async (key) => ({ key, answer: await ratelimit.limit(key) })))
      }),
    )
    for (const key of keys) {
      const ofKey = answers.flat().filter((each) => each.key === key)
      expect(allowed(ofKey.map(({ answer }) => answer))).toHaveLength(5)
    }
  },
)

test('windows of 50 ms during cleanup stay within their limit, and count no grant twice', async () => {
  const LIMIT = 5
  const all = processes(Ratelimit.fixedWindow(LIMIT, 50), 'short windows', { cleanupProbability: 1 })
  // A window is known by its key and its end.
  const windows = new Map<string, number[]>()
  await Promise.all(
    all.map(async (ratelimit, process) => {
      const key = `key ${process % 4}`
      while (windows.size < times(40)) {
        const { success, reset, remaining } = await ratelimit.limit(key)
        const window = `${key} until ${reset}`
        if (success) windows.set(window, [...(windows.get(window) ?? []), remaining])
        if (process % 8 === 0) await ratelimit.cleanup()
      }
    }),
  )
  for (const remaining of windows.values()) {
    expect(remaining.length).toBeLessThanOrEqual(LIMIT)
    expect(new Set(remaining).size).toBe(remaining.length)
  }
})

test('checks during resets get no more than the limit after each reset', async () => {
  const LIMIT = 5
  const all = processes(Ratelimit.fixedWindow(LIMIT, '1h'), 'resets')
  let resets = 0
  const answers = await Promise.all(
    all.map(async (ratelimit, process) => {
      const own: LimitResult[] = []
      while (resets < times(30)) {
        own.push(await ratelimit.limit('key'))
        if (process === 0) {
          await ratelimit.resetUsedTokens('key')
          resets++
        }
      }
      return own
    }),
  )
  const granted = allowed(answers.flat())
  const openings = granted.filter(({ remaining }) => remaining === LIMIT - 1).length
  expect(openings).toBeLessThanOrEqual(resets + 1)
  expect(granted.length).toBeLessThanOrEqual(openings * LIMIT)
})
