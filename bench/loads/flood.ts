import { randomUUID } from 'node:crypto'
import { drizzle } from 'drizzle-orm/node-postgres'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumbers, type Round } from '../measure.ts'
import { interleave, median, summary } from '../rounds.ts'
import { type Bench, type Load, withDatabase } from './load.ts'
import { copyRow } from './rows.ts'
import { floodWith } from './seconds.ts'

const KNOWN_ROWS = 20

/**
 * Only new keys, as an attacker makes them up. They go into a table of one page, and into a large one.
 *
 * A plan made for one page would read the whole table at each check, however large it has become.
 */
export const flood: Load = {
  name: 'flood',
  title: 'flood of new keys, 64 callers',
  async run(bench) {
    const { floodRows, rounds } = bench.settings
    const seconds = new Map<number, (readonly Round[])[]>([KNOWN_ROWS, floodRows].map((rows) => [rows, []]))
    bench.progress.expect(rounds * seconds.size)
    const entries = [...seconds].map(([rows, perRound]) => ({
      name: floodInto(rows),
      turn: async () => {
        const flooded = await floodOf(rows, bench)
        perRound.push(flooded.seconds)
        return flooded.whole
      },
    }))
    const whole = await interleave(entries, rounds, bench.progress)
    const first = [...seconds].map(([rows, perRound]) =>
      summary(
        firstSecondInto(rows),
        perRound.flatMap(([round]) => round ?? []),
      ),
    )
    return {
      measured: [...whole, ...first],
      baseline: floodInto(KNOWN_ROWS),
      comparedBy: 'perSecond',
      seconds: Object.fromEntries([...seconds].map(([rows, all]) => [floodInto(rows), eachSecond(all)])),
    }
  },
}

export function floodInto(rows: number): string {
  return `into ${rows.toLocaleString('en')} rows`
}

export function firstSecondInto(rows: number): string {
  return `${floodInto(rows)}, first second`
}

export const MIN_ROWS: number = KNOWN_ROWS

/** Each flood has a database of its own, because the one before leaves a table and plans behind. */
function floodOf(rows: number, bench: Bench): Promise<{ whole: Round; seconds: readonly Round[] }> {
  return withDatabase(bench, async ({ pool }) => {
    const limiter = defaultLimiter(drizzle({ client: pool }), 'flood')
    const check = async (key: string) => (await limiter.limit(key)).success
    await check('user:0')
    await copyRow(pool, rows - 1)
    await pool.query('analyze rate_limit_ephemeral')
    await warmUp(check)
    const { floodKeys, floodMs } = bench.settings
    return floodWith({
      check,
      key: randomUUID,
      callers: 64,
      most: floodKeys,
      ms: floodMs,
      serverCpu: bench.serverCpu,
    })
  })
}

/** Calls alone and together, until Postgres keeps the plans of the statements. */
async function warmUp(check: (key: string) => Promise<boolean>): Promise<void> {
  const known = keyNumbers(KNOWN_ROWS)
  for (const together of [1, 2, 4, 8, KNOWN_ROWS]) {
    for (let time = 0; time < 200; time++) {
      const first = time % (KNOWN_ROWS - together + 1)
      await Promise.all(known.slice(first, first + together).map(check))
    }
  }
}

/** The median of each second over the rounds. It ends with the shortest round. */
function eachSecond(perRound: readonly (readonly Round[])[]): number[] {
  const shortest = Math.min(...perRound.map(({ length }) => length))
  return Array.from({ length: shortest }, (_, second) =>
    median(perRound.map((round) => round[second]?.perSecond ?? Number.NaN)),
  )
}
