import { and, exists, notExists, or, type SQL, sql, type WithSubquery } from 'drizzle-orm'
import type { AnyAlgorithm, StateColumn } from '../algorithms/algorithm.ts'
import type { Rendered } from '../database/rendered.ts'
import { builder, renderChain } from './builder.ts'
import { forEach, STATE_COLUMNS, toColumn } from './columns.ts'
import { type Link, link } from './link.ts'
import { type Settled, type Source, settledStates } from './settled.ts'

/**
 * How the statement's own transaction commits: as the session does, without waiting for the WAL flush, or waiting for it.
 * In a caller's transaction it would be the caller's data that does not wait, so there it is always the session's way.
 */
export type Commit = 'as the session' | 'async' | 'flushed'

/**
 * The statement that decides and writes: lock the rows, read the clock, decide, write.
 *
 * A key whose row was neither locked nor written, and should have been, lost the race of a first insert: it is undecided, nothing
 * was charged.
 */
export function checkStatement(source: Omit<Source, 'lock'> & { readonly commit: Commit }): Rendered {
  const { algorithm, form, commit } = source
  const { ctes, rows, last } = settledStates({ ...source, lock: true })
  const offered = offeredAmounts(algorithm, last)
  const granted = grantedCalls(algorithm, offered)
  const decision = nextStates(algorithm, granted)
  const written = writtenRows(source, rows, decision)

  const { prefix, key, place } = decision.calls
  const { found, now, writes } = decision.columns
  const isWritten =
    form === 'one' ? exists(builder.select({ one: sql`1` }).from(written)) : sql`${written.key} is not null`
  const query = (...settings: WithSubquery[]) => {
    const answer = builder
      .with(...settings, ...ctes, offered.cte, granted.cte, decision.cte, written)
      .select({
        place: sql`${place}`.as('place'),
        now,
        granted: decision.columns.granted,
        decided:
          sql<boolean>`${appliesTo(algorithm, decision)} and (${found} or not ${writes} or ${isWritten})`.as(
            'decided',
          ),
        ...(algorithm.peak ? { peak: decision.columns.peak } : {}),
        ...forEach(algorithm.columns, (column) => decision.columns[column]),
      })
      .from(decision.cte)
    return form === 'one'
      ? answer
      : answer.leftJoin(written, sql`${written.prefix} = ${prefix} and ${written.key} = ${key}`)
  }
  if (commit === 'as the session') return renderChain(query())
  const setting = commitSetting(commit)
  return renderChain(query(setting).crossJoin(setting))
}

function appliesTo({ applies }: AnyAlgorithm, { columns, calls }: Link<'now'>): SQL {
  return applies?.(columns.now, calls.numbers) ?? sql`true`
}

type Offered = Link<'found' | 'holds' | 'now' | 'available' | StateColumn>
type Granted = Link<'found' | 'now' | 'available' | 'granted' | 'writes' | StateColumn>
type Decision = Link<'found' | 'now' | 'granted' | 'writes' | 'peak' | StateColumn>

function offeredAmounts(algorithm: AnyAlgorithm, settled: Settled['last']): Offered {
  const { found, holds, now, ...state } = settled.columns
  const available = sql`${algorithm.available(state, now, settled.calls.numbers)}`
  return link('offered', settled, { ...settled.columns, available })
}

/** How many of each key's equal calls are granted, and whether that changes the row. */
function grantedCalls(algorithm: AnyAlgorithm, offered: Offered): Granted {
  const { tolerance } = algorithm
  const { holds, ...columns } = offered.columns
  const { numbers } = offered.calls
  const { rate, calls, limit, force, paidFrom } = numbers
  const applies = appliesTo(algorithm, offered)
  const paid =
    algorithm.writtenAt === 'windowStart'
      ? sql`(${paidFrom} is null or ${columns.windowStart} = ${paidFrom})`
      : sql`true`
  const offer =
    tolerance > 0 ? sql`(${columns.available} + ${sql.raw(String(tolerance))})` : columns.available
  return link('granted', offered, {
    ...columns,
    // Nothing is denied that takes nothing. What is granted is all where it fits, so that a tiny rate does not overflow.
    granted: sql`case when ${offer} >= ${rate} * ${calls} or ${rate} <= 0 or ${force} = 1 then ${calls}
      else floor(greatest(${offer}, 0) / ${rate}) end`,
    // A call that grants nothing, or gives back to a limit that is whole, writes nothing.
    writes: sql`${applies} and case when ${rate} > 0
      then ${offer} >= ${rate} or ${force} = 1 or not (${holds} or ${algorithm.freshIsWhole(numbers)})
      else ${rate} < 0 and (${offer} < ${limit} or ${limit} = 0 and ${holds}) and ${paid} end`,
  })
}

/** The states after the granted calls. */
function nextStates(algorithm: AnyAlgorithm, before: Granted): Decision {
  const { found, now, available, granted, writes, ...state } = before.columns
  const { numbers } = before.calls
  const next = algorithm.consume(state, now, sql`${numbers.rate} * ${granted}`, available, numbers)
  return link('decision', before, {
    ...{ found, now, granted, writes },
    ...(algorithm.peak ? { peak: sql`${algorithm.peak(state)}` } : {}),
    ...forEach(
      algorithm.columns,
      (column) => sql`case when ${writes} then ${next[column]} else ${state[column]} end`,
    ),
  })
}

/** In the year 255,000: Postgres' timestamps end at 294,276. */
const LATEST = sql.raw('8e15')

const WRITTEN = [...STATE_COLUMNS, 'expiresAt'] as const

/**
 * The rows that are written: those that are locked are there, and so conflict, and are updated; the others are inserted.
 *
 * Through the conflict each row is found by the primary key, however the planner would join. What conflicts without having been locked was
 * inserted by someone else since: it is left alone, and undecided.
 */
function writtenRows(
  { table, algorithm, form }: Omit<Source, 'lock'>,
  rows: Settled['rows'],
  decision: Decision,
) {
  const { found, writes, ...next } = decision.columns
  const { prefix, key, numbers } = decision.calls
  // On a grid, so that most updates leave the indexed column as it is and stay HOT.
  const grid = sql`greatest(1000, floor(${numbers.periodMs} / 8))`
  // A debt may be paid back later than a timestamp can say.
  const expiresMs = sql<number>`least(ceil((${algorithm.expiresAt(next, numbers)}) / ${grid}) * ${grid}, ${LATEST})`
  const values = {
    ...forEach(STATE_COLUMNS, (column) =>
      toColumn(column, algorithm.columns.includes(column) ? next[column] : undefined),
    ),
    expiresAt: toColumn('expiresAt', expiresMs),
  }
  const locked = builder.select({ one: sql`1` }).from(rows.cte).where(sql`${rows.columns.found}`)
  return builder.$with('ratelimit_written').as(
    builder
      .insert(table)
      .select((qb) => {
        const inserted = qb
          .select({
            prefix: sql`${prefix}`.as('prefix'),
            key: sql`${key}`.as('key'),
            ...forEach(WRITTEN, (column) => values[column].as(column)),
          })
          .from(decision.cte)
        // A statement updates rows or inserts them, not both: each happens in the order of the keys, but one after the other they
        // are in none, and would deadlock with limitAll. What was not inserted is undecided.
        return inserted.where(
          form === 'one' ? sql`${writes}` : and(sql`${writes}`, or(sql`${found}`, notExists(locked))),
        )
      })
      .onConflictDoUpdate({
        target: [table.prefix, table.key],
        set: forEach(WRITTEN, (column) => sql`excluded.${sql.identifier(table[column].name)}`),
        setWhere: exists(locked),
      })
      .returning({ prefix: table.prefix, key: table.key }),
  )
}

/** For this statement's own transaction only. It has to be joined: Postgres never runs a `select` that nothing refers to. */
function commitSetting(commit: 'async' | 'flushed'): WithSubquery {
  const value =
    commit === 'async'
      ? sql`'off'`
      : sql`case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end`
  return builder
    .$with('ratelimit_setting')
    .as((qb) =>
      qb
        .select({ setting: sql`set_config('synchronous_commit', ${value}, true)`.as('setting') })
        .from(sql`(values (1)) as one`),
    )
}
