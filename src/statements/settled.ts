import {
  and,
  count,
  eq,
  isNotNull,
  isNull,
  type SQL,
  type SQLWrapper,
  sql,
  type WithSubquery,
} from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm, StateColumn } from '../algorithms/algorithm.ts'
import { builder } from './builder.ts'
import { forEach, fromColumn, STATE_COLUMNS } from './columns.ts'
import { type Form, inputOf } from './input.ts'
import { aliased, type Link, link, linkOf } from './link.ts'

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
  /** The link with the rows as they are stored, locked: `found` says whether there is one. */
  readonly rows: Link<'found'>
  /** The chain's last link; `holds` says whether there is a row of this limiter that still counts. */
  readonly last: Link<'found' | 'holds' | 'now' | StateColumn>
}

/** What looking and consuming share: the calls, their rows, the time, the states. */
export function settledStates(source: Source): Settled {
  const { ctes, rows, stored } = storedStates(source)
  const { links, last } = settledFrom(source.algorithm, stored)
  return { ctes: [...ctes, ...links], rows, last }
}

/** The links from what is stored to the state at the time of each call. */
export function settledFrom(
  algorithm: AnyAlgorithm,
  stored: Stored,
): Pick<Settled, 'last'> & { readonly links: readonly WithSubquery[] } {
  const { found, owned, clockMs, ...state } = stored.columns
  const { numbers } = stored.calls

  // How far the row is ahead of the clock. Up to a period, it was written by a clock that is ahead of this one, and its
  // time is the time. Further ahead no row can be that this limiter wrote: it starts afresh, or it would deny for as long.
  const ahead = sql`${state[algorithm.writtenAt]} - ${clockMs}`
  const dated = link('dated', stored, {
    ...{ found, ...state },
    now: sql`case when ${owned} and ${ahead} between 0 and ${numbers.periodMs}
      then ${state[algorithm.writtenAt]} else ${clockMs} end`,
    holds: sql`${owned} and ${ahead} <= ${numbers.periodMs} and ${algorithm.holds(state, clockMs, numbers)}`,
  })
  const last = settle(algorithm, dated)
  return { links: [dated.cte, last.cte], last }
}

type Stored = Link<'found' | 'owned' | 'clockMs' | StateColumn>

/** The links that read the rows and then the clock. */
function storedStates({ table, algorithm, form, lock }: Source): {
  ctes: WithSubquery[]
  rows: Link<'found'>
  stored: Stored
} {
  const { source, calls } = inputOf(algorithm, form)

  // Each row is looked up by itself, and many in the order of the calls. A join would be cheaper only in the planner's eyes: it
  // takes the calls for a hundred, and may read a whole table for two.
  const lookup = builder
    .select({ key: table.key, ...forEach(STATE_COLUMNS, (column) => table[column]) })
    .from(table)
    .where(
      form === 'one'
        ? isTheRow(table)
        : sql`${table.prefix} = ${calls.prefix} and ${table.key} = ${calls.key}`,
    )
  const row = (lock ? lookup.for('update') : lookup).as('ratelimit_row')
  const lockedWith = <Columns extends Record<string, SQL>>(columns: Columns) => {
    const cte = builder.$with('ratelimit_locked').as((qb) =>
      qb
        .select({ ...calls.carried, ...aliased(columns) })
        .from(source)
        .leftJoinLateral(row, sql`true`),
    )
    return linkOf(cte, calls, columns)
  }
  const columns = readColumns(algorithm, row)

  // The clock is read when the lock is held: a time from before the wait would revive a window that has ended meanwhile. What
  // is selected from a join is worked out when the join has its row.
  if (form === 'one') {
    const stored = lockedWith({ ...columns, clockMs: sql`coalesce(${calls.numbers.clock}, ${CLOCK_MS})` })
    return { ctes: [stored.cte], rows: stored, stored }
  }
  // Of many rows, when all locks are held: an aggregate is worked out after its last row. Being volatile, it is read once.
  const rows = lockedWith(columns)
  const clock = builder
    .$with('ratelimit_clock')
    .as((qb) =>
      qb.select({ databaseClock: CLOCK_MS.as('databaseClock'), held: count().as('held') }).from(rows.cte),
    )
  const clockMs = sql`coalesce(${rows.calls.numbers.clock}, ${clock.databaseClock})`
  const stored = link('stored', rows, { ...rows.columns, clockMs }, clock)
  return { ctes: [rows.cte, clock, stored.cte], rows, stored }
}

/** What the arithmetic needs of a row. */
export function readColumns(
  algorithm: AnyAlgorithm,
  row: Readonly<Record<StateColumn | 'key', SQLWrapper>>,
): Record<'found' | 'owned' | StateColumn, SQL> {
  return {
    found: sql`${row.key} is not null`,
    // A row in which another column is filled belongs to another algorithm.
    owned: sql`${and(
      ...STATE_COLUMNS.map((column) =>
        algorithm.columns.includes(column) ? isNotNull(row[column]) : isNull(row[column]),
      ),
    )}`,
    ...forEach(algorithm.columns, (column) => fromColumn(column, row[column])),
  }
}

export const CLOCK_MS: SQL<number> = sql<number>`floor(extract(epoch from clock_timestamp()) * 1000)::float8`

/** The link in which each call has its time and the state at that time. */
function settle(
  algorithm: AnyAlgorithm,
  dated: Link<'found' | 'holds' | 'now' | StateColumn>,
): Settled['last'] {
  const { found, holds, now, ...state } = dated.columns
  const { numbers } = dated.calls
  const carried = algorithm.settle(state, now, numbers)
  const fresh = algorithm.fresh(now, numbers)
  return link('settled', dated, {
    ...{ found, holds, now },
    ...forEach(
      algorithm.columns,
      (column) => sql<number>`case when ${holds} then ${carried[column]} else ${fresh[column]} end`,
    ),
  })
}

/** By parameters, in every reference to the table: that plans cheaply, and a sharded Postgres can route it. */
export function isTheRow(table: RateLimitTable): SQL | undefined {
  return and(eq(table.prefix, sql.placeholder('prefix')), eq(table.key, sql.placeholder('key')))
}
