import { drizzle } from 'drizzle-orm/node-postgres'
import type pg from 'pg'
import { makeKeys } from '../contenders/contender.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { allAdmitted, anyOf, keyNumbers, measure, type Round } from '../measure.ts'
import { summary } from '../rounds.ts'
import { type Load, withDatabase } from './load.ts'

const PREFIX = 'cleaned'
const KEYS = 1_000
export const ALONE = 'without expired rows'
export const BESIDE = 'while cleanup() runs'

/**
 * How a cleanup of their prefix affects callers on live keys.
 *
 * The two cannot take turns, because a cleanup that has begun runs to its end. So there are as many rounds
 * before and after it as next to it. Of the rounds next to it, only those count that ended before it did.
 */
export const cleanup: Load = {
  name: 'cleanup',
  title: 'cleanup next to 64 callers',
  run: (bench) =>
    withDatabase(bench, async ({ pool }) => {
      const { settings, progress } = bench
      const limiter = defaultLimiter(drizzle({ client: pool }), PREFIX)
      const check = async (key: string) => (await limiter.limit(key)).success
      await makeKeys({ check }, keyNumbers(KEYS))
      const run = async (ms: number) =>
        allAdmitted(await measure({ check, key: anyOf(KEYS), callers: 64, ms }))

      progress.expect(2 * settings.rounds)
      const alone: Round[] = []
      const beside: Round[] = []
      const runAlone = async (rounds: number) => {
        while (alone.length < rounds) {
          progress.turn(ALONE)
          alone.push(await run(settings.roundMs))
        }
      }
      let deleted = 0
      // A whole round to warm up. Without turns the first round would be the only cold one.
      await run(settings.roundMs)
      await runAlone(Math.ceil(settings.rounds / 2))
      while (beside.length < settings.rounds) {
        progress.prepare('expired rows')
        await addExpired(pool, settings.expiredRows)
        const before = beside.length
        let cleaning = true
        const cleaned = limiter.cleanup().finally(() => {
          cleaning = false
        })
        while (beside.length < settings.rounds) {
          progress.turn(BESIDE)
          const round = await run(settings.roundMs)
          if (!cleaning) break
          beside.push(round)
        }
        deleted += await cleaned
        if (beside.length === before) throw new Error('The cleanup was over before a round was.')
      }
      await pool.query('vacuum rate_limit_ephemeral')
      await runAlone(settings.rounds)
      return {
        measured: [summary(ALONE, alone), summary(BESIDE, beside)],
        baseline: ALONE,
        comparedBy: 'p99Ms',
        facts: { 'rows that cleanup() deleted, besides those that the calls did': deleted },
      }
    }),
}

async function addExpired(pool: pg.Pool, rows: number): Promise<void> {
  await pool.query(
    `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
       select $1, 'expired:' || number, 0, now() - interval '2 hours', now() - interval '1 hour'
       from generate_series(1, $2::int) as number on conflict do nothing`,
    [PREFIX, rows],
  )
  await pool.query('vacuum analyze rate_limit_ephemeral')
}
