import { type SQL, sql } from 'drizzle-orm'
import type { AnyAlgorithm, Expression, PeriodAt, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { isEndless, MAX_COUNT } from '../kernel/limits/limiter.ts'
import { name, Parameters } from '../kernel/sql/builder.ts'
import {
  forEach,
  fromColumn,
  type RowColumns,
  rowColumns,
  SQL_NAMES,
  STATE_COLUMNS,
} from '../kernel/sql/columns.ts'
import { advanced, CLOCK_MS, type Level, level, paramsOf, stateOf } from '../kernel/sql/levels.ts'

/** The columns of a table, by its name or alias in a query. */
export function columnsOf(table: string): RowColumns {
  return stateOf((column) => name(column, table))
}

/** The numbers that can be read from a row under a limiter. */
export type RowNumber = 'used' | 'remaining' | 'reset'

/** The time at which rows are read, in Unix milliseconds. Null for the database's clock. */
export type ReadAt = number | null

/**
 * A number of a row in a query, read under the limiter. A row of nulls, as in a left join, is a new key.
 *
 * @param isOpen Whether it is a query that Citus can pass on.
 */
export function rowNumber(
  row: RowColumns,
  limiter: StoredLimiter,
  at: ReadAt,
  which: RowNumber,
  isOpen: boolean,
): SQL<number> {
  const { algorithm } = limiter
  const numbers = ['limit', 'periodMs', ...algorithm.params]
  const parameters = new Parameters(numbers)
  const states = advanced(limiter, timedRow(row, limiter, at, isOpen), name('at'), parameters, {
    keepHolds: true,
  })
  const available = algorithm.sql.available(stateOf(), name('now'), paramsOf(algorithm, parameters))
  const { source } = level('offered', states, { available })
  const number = rowNumbers(limiter, parameters)[which]()
  return sql<number>`(select ${algorithm.applies ? sql`case when known then ${number} end` : number} from ${source})`
}

/** The row, the numbers of the limiter, and the time at which the row is read. Each value is sent once. */
function timedRow(row: RowColumns, limiter: StoredLimiter, at: ReadAt, isOpen: boolean): Level {
  const { algorithm, params, periodAt } = limiter
  const columns = Object.entries(rowColumns(row, algorithm)).map(([column, value]) => [column, value.sql])
  const edges = periodAt ? edgesAround(at ?? Date.now(), periodAt, algorithm) : {}
  const numbers = Object.entries({ ...params, ...edges }).map(([each, value]) => [each, numberLiteral(value)])
  // Citus refuses a clock, and an offset, in a query without a table.
  const clock = at === null ? CLOCK_MS : numberLiteral(at)
  const base: Record<string, SQL> = {
    ...Object.fromEntries([...columns, ...numbers]),
    ...(isOpen ? {} : { at: clock }),
  }
  const list = Object.entries(base).map(([column, value]) => sql`${value} as ${name(column)}`)
  const selected = sql`select ${sql.join(list, sql`, `)}`
  const plain: Level = {
    source: isOpen ? sql`(${selected}) as stored` : sql`(${selected} offset 0) as stored`,
    columns: Object.keys(base),
    isOpen,
  }
  const rows = isOpen ? level('timed', plain, { at: clock }) : plain
  return periodAt ? inPeriod(rows, algorithm) : rows
}

/**
 * The starts of the last, the present and the next period, and the end of the next. For an algorithm that
 * depends on the period before, also the start of the one before the last.
 */
function edgesAround(time: number, periodAt: PeriodAt, { params }: AnyAlgorithm): Record<string, number> {
  const { start, end } = periodAt(time)
  const edges = { edge0: periodAt(start - 1).start, edge1: start, edge2: end, edge3: periodAt(end).end }
  if (!params.includes('previousStart')) return edges
  return { ...edges, before: periodAt(edges.edge0 - 1).start }
}

/**
 * The rows with the period that holds their time. Three periods are sent to choose from, because the database's
 * clock may be in another period than this machine's. A calendar's row of the next period is read at its own
 * time.
 */
function inPeriod(rows: Level, { sql: formulas, params }: AnyAlgorithm): Level {
  const state = forEach(STATE_COLUMNS, (column) => fromColumn(column, name(SQL_NAMES[column])))
  const common = forEach(['limit', 'periodMs', 'expiryGridMs'], (param) => name(param))
  const clock = name('at')
  const timed = level('timed', rows, { at: formulas.now?.(state, clock, common) ?? clock })
  const [edge0, edge1, edge2, edge3] = [name('edge0'), name('edge1'), name('edge2'), name('edge3')]
  const choose = (one: SQL, two: SQL, three: SQL) =>
    sql`case when ${clock} < ${edge1} then ${one} when ${clock} < ${edge2} then ${two} else ${three} end`
  return level('placed', timed, {
    periodStart: choose(edge0, edge1, edge2),
    periodEnd: choose(edge1, edge2, edge3),
    ...(params.includes('previousStart') ? { previousStart: choose(name('before'), edge0, edge1) } : {}),
    known: sql`${clock} >= ${edge0} and ${clock} < ${edge3}`,
  })
}

/** A number with its type, because drivers send parameters with different types. */
function numberLiteral(value: number): SQL<number> {
  return Number.isFinite(value) ? sql`${value}::float8` : (sql.raw("'Infinity'::float8") as SQL<number>)
}

/** The numbers, worked out from an advanced state and its `available`. */
function rowNumbers(limiter: StoredLimiter, parameters: Parameters) {
  const { algorithm, startsFull } = limiter
  const { sql: formulas, tolerance } = algorithm
  const [state, now, params] = [stateOf(), name('now'), paramsOf(algorithm, parameters)]
  const most = sql<number>`${name('available')} + ${sql.raw(String(tolerance))}::float8`
  const whole = (formulas.wholeAt ?? formulas.expiresAt)(state, params)
  const limit = formulas.capacity?.(state, params) ?? name('limit')
  const reset = sql<number>`case when ${most} >= ${limit} then ${now} else ${whole} end`
  const blockedUntil = formulas.blockedUntil?.(state, params)
  const used = formulas.used(state, now, params)
  const usedUp = isEndless(limiter) ? sql`0::float8` : name('limit')
  const limitless = numberLiteral(limiter.limit)
  const endless = blockedUntil
    ? sql<number>`case when ${blockedUntil} is null then ${limitless} else 0::float8 end`
    : limitless
  return {
    // A block by hand has a larger count than calls can make.
    used: (): Expression =>
      blockedUntil
        ? sql`case when ${used} > ${sql.raw(`${MAX_COUNT}::float8`)} then ${usedUp} else ${used} end`
        : used,
    remaining: (): Expression => (isEndless(limiter) ? endless : sql`greatest(floor(${most}), 0)`),
    reset: (): Expression => {
      if (isEndless(limiter)) return blockedUntil ? sql`coalesce(${blockedUntil}, ${now})` : now
      // A new key of such a limit does not fill.
      return startsFull ? reset : sql`case when holds then ${reset} else 'Infinity' end`
    },
  } as const
}
