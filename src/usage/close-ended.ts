import type { RateLimitTable } from '../../schema/index.ts'
import type { EndedPeriod, Limiter, StoredLimiter } from '../algorithms/algorithm.ts'
import { hasPeriods, paramsAt, periodFrom } from '../algorithms/limiter.ts'
import type { Database } from '../database/database.ts'
import { distinct } from '../database/rows.ts'
import { type Row, runOnce } from '../database/run.ts'
import { checkLimiter } from '../options/validate.ts'
import { columnIn, exactNumber, stateIn } from '../runtime/number-columns.ts'
import { numberArray, textArray } from '../statements/calls.ts'
import { closeStatement, windowsStatement } from '../statements/close.ts'
import { STATE_COLUMNS } from '../statements/columns.ts'
import { closeShardStatement } from '../statements/distributed.ts'
import { MAX_PAGE } from '../statements/page.ts'
import { kept, statementsOf } from '../statements/statements.ts'
import { type Begun, begin } from './begin.ts'

/** The periods to close. */
export interface Closing {
  readonly tx: Database
  readonly table: RateLimitTable
  /** Whether Citus has distributed the table by `key`. */
  readonly distributed: boolean
  readonly prefix: string
  readonly limit: number
  /** Keys up to this one are skipped. */
  readonly after: string
  readonly limiterOf: (key: string) => Limiter
  readonly now: number
  /** Periods that ended less than this ago stay. */
  readonly graceMs: number
  /** Whether the time is that of an injected clock. */
  readonly ownClock: boolean
  /** Windows that began later have not ended. */
  readonly latestStart: number
}

/** A key's period that is over. */
interface Ended extends EndedPeriod {
  readonly key: string
}

/** The same before its row is removed, and its limit. */
interface Over extends Omit<Ended, 'used' | 'reserved'> {
  readonly limiter: StoredLimiter
  /** The time of the row's server. */
  readonly time: number
}

/** Removes the rows of periods that are over, and returns their counts. */
export async function closeEnded(closing: Closing): Promise<Ended[]> {
  const closed: Ended[] = []
  let { after } = closing
  // The first page has as many rows as are to be closed. If few of them have ended, the pages grow.
  for (let size = Math.min(closing.limit, MAX_PAGE); ; size = Math.min(2 * size, MAX_PAGE)) {
    const rows = await windowsAfter(closing, after, size)
    let ended = rows.flatMap((row) => endedIn(row, closing))
    // If others have locked some of the rows, the next ones are closed instead.
    while (ended.length > 0 && closed.length < closing.limit) {
      const missing = closing.limit - closed.length
      closed.push(...(await close(closing, ended.slice(0, missing))))
      ended = ended.slice(missing)
    }
    const last = rows.at(-1)
    if (!last || rows.length < size || closed.length >= closing.limit) return closed
    after = keyIn(last)
  }
}

async function windowsAfter(
  { tx, table, distributed, prefix, latestStart }: Closing,
  after: string,
  size: number,
): Promise<readonly Row[]> {
  const statement = kept(statementsOf(table, distributed), 'windows', () =>
    windowsStatement(table, distributed),
  )
  return distinct(await runOnce({ db: tx }, statement, { prefix, after, latestStart, size }), 'key', size)
}

/** The period of a row, if it is over under the limit of its key. */
function endedIn(row: Row, { limiterOf, now, graceMs, distributed, ownClock }: Closing): Over[] {
  const key = keyIn(row)
  const limiter = limiterOf(key)
  checkLimiter(limiter)
  if (!hasPeriods(limiter) || !isOwn(row, limiter)) return []
  const start = exactNumber(columnIn(row, 'windowStart'))
  // Other programs may write to the table too, and infinity is no time.
  if (!Number.isFinite(start)) return []
  const period = periodFrom(limiter, start)
  // The server of the row may be behind this one, and still count calls in the period.
  const time = distributed && !ownClock ? exactNumber(row['at']) : now
  return period.end + graceMs <= Math.min(now, time) ? [{ key, limiter, time, ...period }] : []
}

/** Whether the row belongs to the limit's algorithm. */
function isOwn(row: Row, { algorithm }: StoredLimiter): boolean {
  const { columns } = algorithm
  return STATE_COLUMNS.every((column) => columns.includes(column) === (columnIn(row, column) !== null))
}

async function close(closing: Closing, ended: readonly Over[]): Promise<Ended[]> {
  const rows: Row[] = []
  for (const group of await groupsOf(closing, ended)) {
    rows.push(...(await remove(closing, group).catch((error) => forgetShards(closing, error))))
  }
  const rowOf = new Map(distinct(rows, 'key', ended.length).map((row) => [keyIn(row), row]))
  const begun: Begun[] = []
  const closed = ended.flatMap(({ limiter, time, ...each }) => {
    const row = rowOf.get(each.key)
    if (!row) return []
    const counted = countedIn(row, limiter, each.end)
    const state = limiter.algorithm.numbers.next?.(stateIn(row, limiter), paramsAt(limiter, time))
    if (!state) return [{ ...each, ...counted }]
    begun.push({ key: each.key, limiter, time, state })
    // The row stays only for what is carried over.
    return counted.used > 0 ? [{ ...each, ...counted }] : []
  })
  await begin(closing, begun)
  return closed
}

/** The periods in groups that one statement can remove. */
async function groupsOf(
  { tx, table, distributed }: Closing,
  ended: readonly Over[],
): Promise<readonly (readonly Over[])[]> {
  if (!distributed) return [ended]
  const { distributedTable } = await import('../runtime/distributed-table.ts')
  const shards = distributedTable(table)
  await shards.load(tx)
  return shards.split(ended, ({ key }) => key)
}

/** Forgets where the shards are if one was split since they were read. The next call reads it. */
async function forgetShards({ table, distributed }: Closing, error: unknown): Promise<never> {
  if (distributed) (await import('../runtime/distributed-table.ts')).distributedTable(table).forget(error)
  throw error
}

function remove(
  { tx, table, distributed, prefix }: Closing,
  ended: readonly Over[],
): Promise<readonly Row[]> {
  const statement = kept(statementsOf(table, distributed), 'close', () =>
    distributed ? closeShardStatement(table) : closeStatement(table),
  )
  return runOnce({ db: tx }, statement, {
    prefix,
    key: textArray(ended.map(({ key }) => key)),
    start: numberArray(ended.map(({ start }) => start)),
  })
}

/** The usage of the period and, for an algorithm that keeps it, the part that is not settled. */
function countedIn(row: Row, limiter: StoredLimiter, end: number): Pick<Ended, 'used' | 'reserved'> {
  const { numbers, settled } = limiter.algorithm
  const state = stateIn(row, limiter)
  const used = numbers.used(state, end, limiter.params)
  return { used, ...(settled ? { reserved: used - settled.now(state) } : {}) }
}

function keyIn(row: Row): string {
  return String(row['key'])
}
