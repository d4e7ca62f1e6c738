import { and, asc, eq, gt, type SQL, sql } from 'drizzle-orm'
import { alias } from 'drizzle-orm/pg-core'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import type { Rules } from '../../kernel/limits/algorithm.ts'
import { MAX_COUNT } from '../../kernel/limits/limiter.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, name, Parameters } from '../../kernel/sql/builder.ts'
import { placed } from '../../kernel/sql/calls.ts'
import {
  answered,
  exact,
  forEach,
  fromColumn,
  isOfKind,
  onGrid,
  rowColumns,
  STATE_COLUMNS,
  stateColumns,
} from '../../kernel/sql/columns.ts'
import { advanced, BY_ITSELF, type Level, level, paramsOf, stateOf } from '../../kernel/sql/levels.ts'
import { MAX_PAGE, page } from '../../shared/page.ts'

/** More than calls can count: the count of a row that blocks its key. */
const IS_BLOCK: SQL = sql.raw(`> ${MAX_COUNT}`)

/** The block of a key that is in another row than the key's, as limiters with `blocks()` have them. */
function blockOf(table: RateLimitTable, parameters: Parameters) {
  const gate = alias(table, 'gate')
  const isOfKey = and(eq(gate.prefix, parameters.text('gates')), eq(gate.key, table.key))
  return {
    gate,
    isBlock: sql`${isOfKey} and ${gate.count} ${IS_BLOCK}`,
    blocked: fromColumn('lastRefill', gate.lastRefill).as('blocked'),
  }
}

/**
 * The statement that finds the `top` keys of a prefix that have used most, and until when they are blocked.
 *
 * It also finds rows of other algorithms and periods that have not expired, and ranks them by their counts.
 */
export function usageStatement(table: RateLimitTable, rules: Rules): Statement {
  const { algorithm } = rules
  const parameters = new Parameters()
  const { gate, isBlock, blocked } = blockOf(table, parameters)
  const columns = { blocked, ...listedColumns(table, rules, parameters) }
  const stored = builder
    .select(columns)
    .from(table)
    .leftJoin(gate, isBlock)
    .where(eq(table.prefix, parameters.text('prefix')))
  const rows: Level = { source: sql`(${stored.getSQL()}) as stored`, columns: Object.keys(columns) }
  const states = advanced(rules, rows, parameters.number('clock'), parameters, { keepHolds: true })
  const used = algorithm.sql.used(stateOf(), name('now'), paramsOf(algorithm, parameters))
  const { source } = level('used', states, {
    used: sql`case when ${name('like')} then ${used} else coalesce(counted, 0) end`,
  })
  const answer = [
    ...[name('key'), name('like'), sql`${exact(name('used'))} as counted`],
    ...answered(['now', 'blocked', ...stateColumns(algorithm)]),
  ]
  return parameters.render(
    sql`select ${sql.join(answer, sql`, `)} from ${source}
      where ${hasUsed(rules)}
      order by used desc, key asc limit ${parameters.number('top')}::bigint`,
  )
}

/** What a list of keys reads of rows, of which some are of other algorithms. */
export function listedColumns(
  table: RateLimitTable,
  rules: Rules,
  parameters: Parameters,
): Record<string, SQL.Aliased> {
  return {
    key: sql`${table.key}`.as('key'),
    counted: countedIn(table).as('counted'),
    expires: fromColumn('windowStart', table.expiresAt).as('expires'),
    like: sql`${isLikeOwn(table, rules, parameters)}`.as('like'),
    ...rowColumns(table, rules.algorithm),
  }
}

/** Whether such a row has used something that counts now. */
export function hasUsed({ algorithm }: Rules): SQL {
  return sql`case when ${name('like')} then holds and used > ${sql.raw(String(algorithm.tolerance))}::float8
        else expires > now and counted is distinct from 0::float8 end`
}

/** What a row of any algorithm has counted. The count of a lease is its fence, that of a block no number. */
function countedIn(table: RateLimitTable): SQL {
  const isNone = sql`${isOfKind(ROWS.slot, table)} or ${table.count} ${IS_BLOCK}`
  return sql`case when ${isNone} then 0::float8 else ${fromColumn('count', table.count)} end`
}

/** Whether the row is of this algorithm, and of a period of this limiter. */
function isLikeOwn(table: RateLimitTable, { algorithm }: Rules, parameters: Parameters): SQL {
  const { isRecent, isOfPeriod } = algorithm.sql
  const raw = forEach(STATE_COLUMNS, (column) => fromColumn(column, table[column]))
  const params = paramsOf(algorithm, parameters)
  const expires = fromColumn('windowStart', table.expiresAt)
  const isOfItsPeriod = isRecent
    ? isRecent(raw, params, parameters.number('previousStart'))
    : isOfPeriod?.(raw, expires, params, (time) => onGrid(time, parameters))
  return sql`${and(isOfKind(algorithm, table), isOfItsPeriod)}`
}

/** The statement that finds a page of a prefix's keys, after a key. For `isShown` see `Store`. */
export function keysStatement(table: RateLimitTable, isShown: boolean): Statement {
  const parameters = new Parameters()
  const rest = and(eq(table.prefix, parameters.text('prefix')), gt(table.key, parameters.text('after')))
  const keys = builder.select({ key: table.key }).from(table).where(rest).orderBy(asc(table.key))
  return parameters.render(page(keys, sql.raw(String(MAX_PAGE)), isShown))
}

/** The numbers of a limiter that a look uses. */
export function lookParams({ algorithm }: Rules): readonly string[] {
  return ['limit', 'periodMs', ...algorithm.params]
}

/**
 * The statement that looks at keys whose limiters have one algorithm and different numbers. For `isShown` see
 * `Store`.
 */
export function lookEachStatement(table: RateLimitTable, rules: Rules, isShown: boolean): Statement {
  const numbers = lookParams(rules)
  const parameters = new Parameters(numbers)
  const { gate, isBlock, blocked } = blockOf(table, parameters)
  const columns = { ...rowColumns(table, rules.algorithm), blocked }
  const array = (each: string, type: 'text' | 'float8') => parameters.array(each, type, isShown)
  const arrays = [array('key', 'text'), ...numbers.map((each) => array(each, 'float8'))]
  const calls = placed(['key', ...numbers], arrays)
  const isPrefix = sql`${table.prefix} = ${parameters.text('prefix')}`
  const stored = isShown ? { ...columns, found: sql`${table.key}`.as('found') } : columns
  const row = builder
    .select(stored)
    .from(table)
    .leftJoin(gate, isBlock)
    .where(
      isShown
        ? sql`${isPrefix} and ${table.key} = any(${array('key', 'text')})`
        : sql`${isPrefix} and ${table.key} = call.key`,
    )
    .getSQL()
  const rows: Level = {
    source: isShown
      ? sql`${calls} join (${row} ${BY_ITSELF}) as stored on stored.found = call.key`
      : sql`${calls} cross join lateral (${row} ${BY_ITSELF}) as stored`,
    columns: ['place', ...numbers, ...Object.keys(columns)],
  }
  const states = advanced(rules, rows, parameters.number('clock'), parameters, { keepHolds: true })
  const numbered = answered(['now', 'blocked', ...stateColumns(rules.algorithm)])
  const answer = [name('place'), name('holds'), ...numbered]
  return parameters.render(sql`select ${sql.join(answer, sql`, `)} from ${states.source}`)
}
