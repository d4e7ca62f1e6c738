import { inTurn } from '../estimates/in-turn.ts'
import type { Database } from '../kernel/database/database.ts'
import { distinct } from '../kernel/database/rows.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { EndedPeriod, Limiter, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { hasPeriods, paramsAt, periodFrom } from '../kernel/limits/limiter.ts'
import { checkLimiter } from '../kernel/options/validate.ts'
import { numberArray, textArray } from '../kernel/sql/calls.ts'
import { STATE_COLUMNS } from '../kernel/sql/columns.ts'
import type { Table } from '../kernel/store/store.ts'
import { columnIn, exactNumber, stateIn } from '../shared/number-columns.ts'
import { MAX_PAGE } from '../shared/page.ts'
import { type Begun, begin } from './begin.ts'
import { closeStatement, windowsStatement } from './sql/close.ts'

/** The periods to close. */
export interface Closing {
  readonly tx: Database
  readonly table: Table
  readonly prefix: string
  readonly limit: number
  /** Keys up to this one are skipped. */
  readonly after: string
  readonly limiterOf: (key: string) => Limiter | Promise<Limiter>
  readonly now: number
  /** Periods that ended less than this ago stay. */
  readonly graceMs: number
  /** Whether the time is that of an injected clock. */
  readonly ownClock: boolean
  /** Windows that began later have not ended. */
  readonly latestStart: number
}

/** A key's period that is over. */
export interface ClosedPeriod extends EndedPeriod {
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
}

/** The same before its row is removed, and its limit. */
interface Over extends Omit<ClosedPeriod, 'used' | 'reserved'> {
  readonly limiter: StoredLimiter
  /** The time of the row's server. */
  readonly time: number
}

/** Removes the rows of periods that are over, and returns their counts. */
export async function closeEnded(closing: Closing): Promise<ClosedPeriod[]> {
  const closed: ClosedPeriod[] = []
  let { after } = closing
  // The first page has as many rows as are to be closed. If few of them have ended, the pages grow.
  for (let size = Math.min(closing.limit, MAX_PAGE); ; size = Math.min(2 * size, MAX_PAGE)) {
    const rows = await windowsAfter(closing, after, size)
    const limiters = await inTurn(rows, async (row) => closing.limiterOf(keyOfRow(row)))
    let ended = rows.flatMap((row, place) => endedPeriods(row, limiters[place] as Limiter, closing))
    // If others have locked some of the rows, the next ones are closed instead.
    while (ended.length > 0 && closed.length < closing.limit) {
      const missing = closing.limit - closed.length
      closed.push(...(await closeAll(closing, ended.slice(0, missing))))
      ended = ended.slice(missing)
    }
    const last = rows.at(-1)
    if (!last || rows.length < size || closed.length >= closing.limit) return closed
    after = keyOfRow(last)
  }
}

async function windowsAfter(
  { tx, table, prefix, latestStart }: Closing,
  after: string,
  size: number,
): Promise<readonly Row[]> {
  const { isShown } = table.store
  const statement = kept(table.statements, 'windows', () => windowsStatement(table.table, isShown))
  return distinct(await runOnce({ db: tx }, statement, { prefix, after, latestStart, size }), 'key', size)
}

/** The period of a row, if it is over under the limit of its key. */
function endedPeriods(row: Row, limiter: Limiter, { now, graceMs, ownClock }: Closing): Over[] {
  const key = keyOfRow(row)
  checkLimiter(limiter)
  if (!hasPeriods(limiter) || !isOfAlgorithm(row, limiter)) return []
  const start = exactNumber(columnIn(row, 'windowStart'))
  // Other programs may write to the table too, and infinity is no time.
  if (!Number.isFinite(start)) return []
  const period = periodFrom(limiter, start)
  // The server of the row may be behind this one, and still count calls in the period.
  const time = row['at'] === undefined || ownClock ? now : exactNumber(row['at'])
  return period.end + graceMs <= Math.min(now, time) ? [{ key, limiter, time, ...period }] : []
}

/** Whether the row belongs to the limit's algorithm. */
function isOfAlgorithm(row: Row, { algorithm }: StoredLimiter): boolean {
  const { columns } = algorithm
  return STATE_COLUMNS.every((column) => columns.includes(column) === (columnIn(row, column) !== null))
}

async function closeAll(closing: Closing, ended: readonly Over[]): Promise<ClosedPeriod[]> {
  const rows = await remove(closing, ended)
  const rowOf = new Map(distinct(rows, 'key', ended.length).map((row) => [keyOfRow(row), row]))
  const begun: Begun[] = []
  const closed = ended.flatMap(({ limiter, time, ...each }) => {
    const row = rowOf.get(each.key)
    if (!row) return []
    const counted = usedInPeriod(row, limiter, each.end)
    const state = limiter.algorithm.numbers.next?.(stateIn(row, limiter), paramsAt(limiter, time))
    if (!state) return [{ ...each, ...counted }]
    begun.push({ key: each.key, limiter, time, state })
    // The row stays only for what is carried over.
    return counted.used > 0 ? [{ ...each, ...counted }] : []
  })
  await begin({ ...closing, table: closing.table.table }, begun)
  return closed
}

async function remove({ tx, table, prefix }: Closing, ended: readonly Over[]): Promise<readonly Row[]> {
  await table.load?.(tx)
  const { store } = table
  const statement = kept(table.statements, 'close', () =>
    closeStatement(table.table, store.steps?.removeWindows),
  )
  const rows: Row[] = []
  try {
    for (const group of store.split(ended, ({ key }) => key)) {
      const key = textArray(group.map((each) => each.key))
      const start = numberArray(group.map((each) => each.start))
      rows.push(...(await runOnce({ db: tx }, statement, { prefix, key, start })))
    }
  } catch (error) {
    // The next call reads again how to split.
    store.forget(error)
    throw error
  }
  return rows
}

/** The usage of the row's period and, for an algorithm that keeps it, the part that is not settled. */
export function usedInPeriod(
  row: Row,
  limiter: StoredLimiter,
  end: number,
): Pick<EndedPeriod, 'used' | 'reserved'> {
  const { numbers, settled } = limiter.algorithm
  const state = stateIn(row, limiter)
  const used = numbers.used(state, end, limiter.params)
  return { used, ...(settled ? { reserved: used - settled.now(state) } : {}) }
}

function keyOfRow(row: Row): string {
  return String(row['key'])
}
