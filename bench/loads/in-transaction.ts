import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { type Database, limitAll, Ratelimit } from '../../src/index.ts'
import { takeOne, takeOneUnprepared } from '../contenders/bare-update.ts'
import { PLENTY } from '../contenders/contender.ts'
import { allAdmitted, anyOf, keyNumbers, type Round, Stopwatch } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import { requestsOf } from './calls.ts'
import { KEYS } from './known-rows.ts'
import { type Bench, type Load, type Outcome, withDatabase } from './load.ts'

export const INSIDE = "drizzle-ratelimit in the caller's transaction"
export const ALL_INSIDE = "limitAll of two limits of one table in the caller's transaction"
export const TWO_TABLES_INSIDE = "limitAll of two limits of two tables in the caller's transaction"
export const BARE_INSIDE = 'bare UPDATE by primary key'

type CheckInside = (key: string, tx: Database) => Promise<boolean>

/**
 * One limit and two, next to a bare UPDATE that is sent in the same way.
 * A statement name saves as much for all.
 */
export const IN_TRANSACTION: readonly Load[] = [
  {
    name: 'transaction-unprepared',
    title: 'inside a transaction, unprepared',
    run: (bench) => inTransaction(bench, false, takeOneUnprepared),
  },
  {
    name: 'transaction-prepared',
    title: 'inside a transaction, prepared',
    run: (bench) => inTransaction(bench, true, takeOne),
  },
]

/**
 * What a check adds to a caller's transaction. Only the call is timed, not the transaction around it.
 *
 * All update the same rows over one connection, so that the bare UPDATE can be sent without Drizzle.
 */
function inTransaction(
  bench: Bench,
  preparedStatements: boolean,
  takeBare: typeof takeOne,
): Promise<Outcome> {
  return withDatabase(bench, async (_connections, url) => {
    const { rounds, roundMs, warmUpMs } = bench.settings
    const client = new pg.Client({ connectionString: url })
    // A connection broke while idle. Its next query reports that.
    client.on('error', () => {})
    await client.connect()
    const db = drizzle({ client })
    const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
    const ratelimit = new Ratelimit({ db, limiter, prefix: PREFIX, preparedStatements })
    const second = new Ratelimit({ db, limiter, prefix: 'second', preparedStatements })
    const quota = new Ratelimit({ db, limiter, prefix: 'quota', preparedStatements, durable: true })
    for (const key of keyNumbers(KEYS)) {
      for (const known of [ratelimit, second, quota]) await known.limit(key)
    }

    const checks: Record<string, CheckInside> = {
      [INSIDE]: async (key, tx) => (await ratelimit.limit(key, { tx })).success,
      [ALL_INSIDE]: allOf(ratelimit, second),
      [TWO_TABLES_INSIDE]: allOf(ratelimit, quota),
      [BARE_INSIDE]: (key) => takeBare(client, PREFIX, key),
    }
    const entries = Object.entries(checks).map(([name, check]): Entry => {
      const inside = (ms: number) => measureInside((work) => db.transaction(work), check, ms)
      return {
        name,
        turn: async () => {
          await inside(warmUpMs)
          return allAdmitted(await inside(roundMs))
        },
      }
    })
    bench.progress.expect(rounds * entries.length)
    const measured = await interleave(entries, rounds, bench.progress)
    await client.end()
    return { measured, baseline: INSIDE, comparedBy: 'p50Ms' }
  })
}

const PREFIX = 'inside'

function allOf(first: Ratelimit, second: Ratelimit): CheckInside {
  return async (key, tx) => (await limitAll(requestsOf(first, second, key), { tx })).success
}

async function measureInside(
  transaction: (work: (tx: Database) => Promise<void>) => Promise<void>,
  check: CheckInside,
  ms: number,
): Promise<Round> {
  const stopwatch = new Stopwatch()
  const key = anyOf(KEYS)
  let checks = 0
  let admitted = 0
  const started = performance.now()
  while (performance.now() - started < ms) {
    await transaction(async (tx) => {
      const begun = performance.now()
      if (await check(key(), tx)) admitted++
      stopwatch.add(performance.now() - begun)
      checks++
    })
  }
  const perSecond = (checks * 1000) / (performance.now() - started)
  return { checks, admitted, perSecond, ...stopwatch.percentiles() }
}
