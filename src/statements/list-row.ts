import { and, eq, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Rules, StateColumn } from '../algorithms/algorithm.ts'
import { MAX_COUNT } from '../algorithms/limiter.ts'
import { builder, name, type Parameters } from './builder.ts'
import { lockedColumns, SQL_NAMES } from './columns.ts'
import { type CallNumbers, givesBack, type Intent, nextRow, paidBy } from './decided.ts'
import { advanced, CLOCK_MS, type Level, level, OTHER, paramsOf, type QueryLevel, stateOf } from './levels.ts'

// One row of a list: how it is locked, what it has, and how it is written.

/** What the text of a list's statement depends on, for one of its rows. */
export interface ListRow {
  readonly table: RateLimitTable
  readonly rules: Rules
  /** The time is sent along instead of being read. */
  readonly injectedClock: boolean
  /** What is done to it in the end. */
  readonly does: Exclude<Intent, 'grant'> | 'look'
  /** Whether something is given back before that. */
  readonly refunds: boolean
  /** Whether there has to be enough. */
  readonly asks: boolean
  /** Whether the list is done even if there is not enough. */
  readonly isDry: boolean
  /** Whether the row has to be there. Giving back to a row that is not there does nothing. */
  readonly isNeeded: boolean
}

/** The query that locks the row if the conditions hold. */
export function lockedRow(
  { table, rules }: ListRow,
  parameters: Parameters,
  conditions: readonly SQL[],
  waits: boolean,
): SQL {
  return builder
    .select(lockedColumns(table, rules))
    .from(table)
    .where(and(isTheRow(table, parameters), ...conditions))
    .for('update', waits ? {} : { skipLocked: true })
    .getSQL()
}

/** The row without a lock, or nulls. */
export function seenRow({ table, rules }: ListRow, parameters: Parameters): SQL {
  const row = builder.select(lockedColumns(table, rules)).from(table).where(isTheRow(table, parameters))
  return orNulls(sql`lateral (${row.getSQL()} offset 0) as ${name('stored')}`)
}

/** The row of a source, or nulls if it has none. */
export function orNulls(source: SQL): SQL {
  return sql`(select 1) as ${name('one')} left join ${source} on true`
}

function isTheRow(table: RateLimitTable, parameters: Parameters): SQL | undefined {
  return and(eq(table.prefix, parameters.text('prefix')), eq(table.key, parameters.text('key')))
}

/** The name of the link that decides about a row. */
export function decidedAt(place: number): string {
  return `ratelimit_decided_${place}`
}

const BEFORE = 'before_'

/**
 * What the row has and whether the list may be done: `lets`; whether there is enough: `fits`; and whether
 * anything is written if the list is done: `granted`.
 */
export function decidedRow(row: ListRow, source: SQL, parameters: Parameters): QueryLevel {
  const { table, rules, injectedClock, does, asks, isDry } = row
  const { algorithm } = rules
  const { sql: formulas, tolerance } = algorithm
  const params = paramsOf(algorithm, parameters)
  const rows: Level = { source, columns: Object.keys(lockedColumns(table, rules)) }
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  const before: CallNumbers['before'] = (what) => parameters.number(what)
  const states = advanced(rules, rows, clock, parameters, {
    tellsEnded: true,
    paid: paidBy(does, before),
  })
  const [state, now] = [stateOf(), name('now')]
  const used = formulas.used(state, now, params)
  const isUsed = () => givesBack(algorithm, used, before)
  const available = formulas.available(state, now, params)
  const offered = level('offered', row.refunds ? refunded() : states, { available })

  const applies = algorithm.applies?.(now, params) ?? sql`true`
  const slack = sql.raw(tolerance > 0 ? ` + ${tolerance}::float8` : '')
  const fits = asks ? sql`available${slack} >= ${parameters.number('needed')}` : sql`true`
  const granted: SQL[] = []
  if (does === 'adjust') granted.push(sql`${parameters.number('rate')} > 0::float8 or ${isUsed()}`)
  if (isDry && asks) granted.push(sql`${fits} or ${parameters.number('forced')} > 0::float8`)
  if (isDry && asks && row.refunds) granted.push(sql`refunded`)
  const isGranted = granted.length > 0 ? sql.join(granted, sql` or `) : sql.raw(String(does !== 'look'))
  return level('decided', offered, {
    fits,
    lets: and(
      ...(isDry || !asks ? [] : [fits]),
      ...(does === 'adjust' ? [isCountable()] : []),
      ...(rules.refusesOther ? [sql`not ${name(OTHER)}`] : []),
      applies,
    ) as SQL,
    granted: sql`case when ${isGranted} then 1::float8 else 0::float8 end`,
  })

  /** What cannot be counted is refused. */
  function isCountable(): SQL {
    const [rate, most] = [parameters.number('rate'), sql.raw(`${MAX_COUNT}::float8`)]
    const amount =
      isDry && asks ? sql`case when ${fits} then ${rate} else ${parameters.number('forced')} end` : rate
    return sql`(${rate} <= 0::float8 or ${used} + ${amount} <= ${most})`
  }

  /** The levels that give back, and keep what was there before. */
  function refunded(): QueryLevel {
    const names = algorithm.columns.map((column) => [column, SQL_NAMES[column]] as const)
    const before = level('refunding', states, {
      refunded: isUsed(),
      available,
      ...Object.fromEntries(names.map(([, column]) => [BEFORE + column, name(column)])),
    })
    const next = formulas.consume(
      state,
      now,
      name('available'),
      parameters.number('refund'),
      params,
      sql<number>`0::float8`,
    )
    return level(
      'refunded',
      before,
      Object.fromEntries(
        names.map(([each, column]) => [
          column,
          sql`case when refunded then ${next[each]} else ${name(column)} end`,
        ]),
      ),
      ['available'],
    )
  }
}

/** How much is taken from the row if the list is done. */
export function amountOf({ isDry, asks }: ListRow, decided: string, parameters: Parameters): SQL<number> {
  const rate = parameters.number('rate')
  if (!isDry || !asks) return rate
  return sql`case when ${name('fits', decided)} then ${rate} else ${parameters.number('forced')} end`
}

/**
 * The query that writes the row if the list is done, `isDone`. A row that does not start full is also written
 * if it is new, so that it begins to fill.
 */
export function writtenRow(
  row: ListRow & { readonly does: Intent },
  decided: string,
  amount: SQL<number>,
  isDone: SQL,
  parameters: Parameters,
): SQL {
  const { table, rules, does } = row
  const isCharged = sql`${isDone} and ${name('granted', decided)} > 0::float8`
  const isOther = rules.refusesOther ? sql` and not ${name(OTHER, decided)}` : sql``
  const isNew = sql`${name('holds', decided)} is not true${isOther}`
  const taken = rules.startsFull
    ? amount
    : sql<number>`case when ${isCharged} then ${amount} else 0::float8 end`
  return builder
    .update(table)
    .set(nextRow(rules, does, taken, (what) => parameters.number(what), parameters, decided))
    .from(name(decided))
    .where(
      and(isTheRow(table, parameters), rules.startsFull ? isCharged : sql`((${isCharged}) or (${isNew}))`),
    )
    .getSQL()
}

/** What the answer says of the row as it was before the list. */
export function rowAnswer({ rules, refunds }: ListRow, decided: string): Record<string, SQL> {
  const { columns, sql: formulas } = rules.algorithm
  const stored = (column: StateColumn) =>
    columns.includes(column) ? name((refunds ? BEFORE : '') + SQL_NAMES[column], decided) : sql`null::float8`
  return {
    now: name('now', decided),
    granted: name('granted', decided),
    holds: rules.startsFull ? sql`null::boolean` : name('holds', decided),
    [OTHER]: rules.refusesOther ? name(OTHER, decided) : sql`null::boolean`,
    ended: formulas.ended ? name('ended', decided) : sql`null::text`,
    count: stored('count'),
    prev_count: stored('prevCount'),
    window_start: stored('windowStart'),
    tokens: stored('tokens'),
    last_refill: stored('lastRefill'),
  }
}
