import { prefetch } from 'drizzle-ratelimit/prefetch'
import { expect, test } from 'vitest'
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
  const common = { db: database.connect(2).db, prefix: `busy ${++prefix}`, cleanupProbability: 0 }
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

type Prefetching = Awaited<ReturnType<typeof prefetching>>

/** Calls while a stock is fetched. All get their answers, and the stock goes on. */
function fetching({ ratelimit, used }: Prefetching) {
  const calls = callsOf(ratelimit, LEFT + 20)
  const callAgain = () => void calls.push(...callsOf(ratelimit, 2))
  const expectEnd = async () => {
    await expectGranted(calls)
    expect(await ratelimit.limit('key')).toMatchObject({ prefetched: true })
    await ratelimit.close()
    expect(await used()).toEqual([CALLS + LEFT + 23])
  }
  return { callAgain, expectEnd }
}

/** Calls while it closes. The stock that it has goes back, and the one that is fetched. */
function closing({ ratelimit, used }: Prefetching) {
  const calls = callsOf(ratelimit, LEFT + 1)
  const closed = ratelimit.close()
  const expectEnd = async () => {
    await expectGranted(calls)
    await closed
    expect(await used()).toEqual([CALLS + LEFT + 1, CALLS])
  }
  return { callAgain: () => {}, expectEnd }
}

test('no call of a process that is blocked is lost, and no unit of its stocks', async () => {
  const [one, two] = [await prefetching('key'), await prefetching('key')]
  const [three, four] = [await prefetching('key', 'another key'), await prefetching('key', 'another key')]
  const begun = [fetching(one), closing(three)]
  await sent()
  // Their statements were sent before the process is blocked, and those of the others were not.
  begun.push(fetching(two), closing(four))
  for (const { callAgain } of begun) callAgain()
  block(blockedMs)
  for (const { expectEnd } of begun) await expectEnd()
})
