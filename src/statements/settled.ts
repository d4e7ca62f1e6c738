import { and, count, eq, isNotNull, isNull, type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm, StateColumn } from '../algorithms/algorithm.ts'
import { builder } from './builder.ts'
import { forEach, fromColumn, STATE_COLUMNS } from './columns.ts'
import { type Aliases, type CallNumber, type Form, inputOf } from './input.ts'

/** Which rows a statement is about, and whether it locks them. */
export interface Source {
  readonly table: RateLimitTable
  readonly algorithm: AnyAlgorithm
  readonly form: Form
  readonly lock: boolean
}

/** The calls with their rows' states, brought forward to now. */
export interface Settled {
  /** The chain that leads here. */
  readonly ctes: readonly WithSubquery[]
  /** The rows that there are, locked. */
  readonly locked: WithSubquery
  /** The chain's last link, which has the columns below. */
  readonly cte: WithSubquery
  readonly callPrefix: SQL.Aliased<string>
  readonly callKey: SQL.Aliased<string>
  /** The call's numbers and the algorithm's parameters. */
  readonly numbers: Aliases<CallNumber>
  /** Whether there was a row. */
  readonly found: SQL.Aliased<boolean>
  /** Whether it was one of this limiter that still counts. */
  readonly holds: SQL.Aliased<boolean>
  readonly now: SQL.Aliased<number>
  readonly state: Aliases<StateColumn>
}

/**
 * What looking and consuming share: the calls, their rows, the time, the states.
 *
 * Drizzle 0.45 writes an alias without its table, so no alias here is the name of a column; 1.0 writes it with the CTE that it is
 * taken from, so each link takes its columns from the link before.
 */
export function settledStates({ table, algorithm, form, lock }: Source): Settled {
  const input = inputOf(algorithm, form)

  // Each row is looked up by itself, and many in the order of the calls. A join would be cheaper only in the planner's eyes: it
  // takes the calls for a hundred, and may read a whole table for two.
  const isTheirs = and(eq(table.prefix, input.callPrefix), eq(table.key, input.callKey))
  const row = builder
    .select({ prefix: table.prefix, key: table.key, ...forEach(STATE_COLUMNS, (column) => table[column]) })
    .from(table)
    .where(form === 'one' ? isTheRow(table) : isTheirs)
  const found = (lock ? row.for('update') : row).as('ratelimit_row')
  const locked = builder.$with('ratelimit_locked').as((qb) =>
    qb
      .select({ prefix: found.prefix, key: found.key, ...forEach(STATE_COLUMNS, (column) => found[column]) })
      .from(input.cte)
      .crossJoinLateral(found),
  )

  // An aggregate is worked out after its last row was read, so the clock is read when all locks are held: a time from
  // before the wait would revive a window that has ended meanwhile. Being volatile, it is read once.
  const clock = builder.$with('ratelimit_clock').as((qb) =>
    qb
      .select({
        databaseClock: sql<number>`floor(extract(epoch from clock_timestamp()) * 1000)::float8`.as(
          'databaseClock',
        ),
        held: count().as('held'),
      })
      .from(locked),
  )

  const stored = builder.$with('ratelimit_stored').as((qb) =>
    qb
      .select({
        callPrefix: input.callPrefix,
        callKey: input.callKey,
        numbers: input.numbers,
        clockMs: sql<number>`coalesce(${input.numbers.clock}, ${clock.databaseClock})`.as('clockMs'),
        found: sql<boolean>`${locked.key} is not null`.as('found'),
        owned: sql<boolean>`${and(
          ...STATE_COLUMNS.map((column) =>
            algorithm.columns.includes(column) ? isNotNull(locked[column]) : isNull(locked[column]),
          ),
        )}`.as('owned'),
        state: forEach(algorithm.columns, (column) =>
          fromColumn(column, locked[column]).as(`stored_${column}`),
        ),
      })
      .from(input.cte)
      .crossJoin(clock)
      .leftJoin(locked, and(eq(locked.prefix, input.callPrefix), eq(locked.key, input.callKey))),
  )

  // How far the row is ahead of the clock. Up to a period, it was written by a clock that is ahead of this one, and its
  // time is the time. Further ahead no row can be that this limiter wrote: it starts afresh, or it would deny for as long.
  const ahead = sql`${stored.state[algorithm.writtenAt]} - ${stored.clockMs}`
  const dated = builder.$with('ratelimit_dated').as((qb) =>
    qb
      .select({
        callPrefix: stored.callPrefix,
        callKey: stored.callKey,
        numbers: stored.numbers,
        found: stored.found,
        state: stored.state,
        holds: sql<boolean>`${stored.owned} and ${ahead} <= ${stored.numbers.periodMs}
          and ${algorithm.holds(stored.state, stored.clockMs, stored.numbers)}`.as('holds'),
        now: sql<number>`case when ${stored.owned} and ${ahead} between 0 and ${stored.numbers.periodMs}
          then ${stored.state[algorithm.writtenAt]} else ${stored.clockMs} end`.as('now'),
      })
      .from(stored),
  )

  const carried = algorithm.settle(dated.state, dated.now, dated.numbers)
  const fresh = algorithm.fresh(dated.now, dated.numbers)
  const settled = builder.$with('ratelimit_settled').as((qb) =>
    qb
      .select({
        callPrefix: dated.callPrefix,
        callKey: dated.callKey,
        numbers: dated.numbers,
        found: dated.found,
        holds: dated.holds,
        now: dated.now,
        state: forEach(algorithm.columns, (column) =>
          sql<number>`case when ${dated.holds} then ${carried[column]} else ${fresh[column]} end`.as(
            `settled_${column}`,
          ),
        ),
      })
      .from(dated),
  )
  return {
    ctes: [input.cte, locked, clock, stored, dated, settled],
    locked,
    cte: settled,
    callPrefix: settled.callPrefix,
    callKey: settled.callKey,
    numbers: settled.numbers,
    found: settled.found,
    holds: settled.holds,
    now: settled.now,
    state: settled.state,
  }
}

/** By parameters, in every reference to the table: that plans cheaply, and a sharded Postgres can route it. */
export function isTheRow(table: RateLimitTable): SQL | undefined {
  return and(eq(table.prefix, sql.placeholder('prefix')), eq(table.key, sql.placeholder('key')))
}
