import { prefetch } from 'drizzle-ratelimit/prefetch'
import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { block, sent } from '../../support/busy.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'

// A process that is busy reads no answers, also not those that bring stocks. No unit of them may be lost.

const database = useDatabase()
/** The time in which the process is blocked does not count. A busy machine has to answer within the rest. */
const [timeout, blockedMs] = [1_500, 1_600]
/** After so many calls, a key has a stock of which nothing is used. */
const [CALLS, LEFT] = [26, 50]
let prefix = 0

/** A limiter whose keys have a stock each. `used` says how much of them is charged. */
async function prefetching(...keys: string[]) {
  const common = { db: database.db, prefix: `busy ${++prefix}`, cleanupProbability: 0 }
  const config = { ...common, limiter: Ratelimit.fixedWindow(1_000, '1h') }
  const use = [prefetch({ tokens: LEFT, for: '1m' })]
  const ratelimit = new Ratelimit({ ...config, timeout, onError: 'allow', use })
  for (const key of keys) for (let calls = 0; calls < CALLS; calls++) await ratelimit.limit(key)
  const rows = new Ratelimit(config)
  const used = () => Promise.all(keys.map(async (key) => (await rows.getRemaining(key)).used))
  expect(await used()).toEqual(keys.map(() => CALLS + LEFT))
  return { ratelimit, used }
}

function callsOf(ratelimit: Ratelimit, count: number) {
  return Array.from({ length: count }, () => ratelimit.limit('key'))
}

/** Each call was granted by the database, or from what it has prefetched. */
async function expectGranted(calls: ReturnType<typeof callsOf>): Promise<void> {
  for (const answer of await Promise.all(calls)) {
    expect(answer).toMatchObject({ success: true })
    expect(answer).not.toHaveProperty('degraded')
  }
}

describe.each([
  ['after the statement was sent', sent],
  ['before it was sent', async () => {}],
])('a process that is blocked, %s,', (_, untilThen) => {
  test('while a stock is fetched: all calls get their answers, and the stock goes on', async () => {
    const { ratelimit, used } = await prefetching('key')
    const calls = callsOf(ratelimit, LEFT + 20)
    await untilThen()
    calls.push(...callsOf(ratelimit, 2))
    block(blockedMs)
    await expectGranted(calls)
    expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
    await ratelimit.close()
    expect(await used()).toEqual([CALLS + LEFT + 23])
  })

  test('while it closes: the stock that it has goes back, and the one that is fetched', async () => {
    const { ratelimit, used } = await prefetching('key', 'another key')
    const calls = callsOf(ratelimit, LEFT + 1)
    const closed = ratelimit.close()
    await untilThen()
    block(blockedMs)
    await expectGranted(calls)
    await closed
    expect(await used()).toEqual([CALLS + LEFT + 1, CALLS])
  })
})
