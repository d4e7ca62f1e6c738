import { and, asc, eq, not, sql, type WithSubquery } from 'drizzle-orm'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { forEach, STATE_COLUMNS, toColumn } from './columns.ts'
import { param } from './input.ts'
import { type Source, settledStates } from './settled.ts'

/**
 * How the statement's own transaction commits: as the session does, without waiting for the WAL flush, or waiting for it.
 * In a caller's transaction it would be the caller's data that does not wait, so there it is always the session's way.
 */
export type Commit = 'as the session' | 'async' | 'flushed'

/**
 * The statement that decides and writes: lock the rows, read the clock, decide, update or insert.
 *
 * A key with neither a locked nor an inserted row lost the race of a first insert: it is undecided, nothing was charged.
 */
export function checkStatement(source: Omit<Source, 'lock'> & { readonly commit: Commit }): Rendered {
  const { table, algorithm, form, commit } = source
  const { ctes, cte: settled, key, numbers, found, now, state } = settledStates({ ...source, lock: true })
  const { rate, calls, limit } = numbers

  const offered = builder.$with('offered').as((qb) =>
    qb
      .select({
        key,
        numbers,
        found,
        now,
        state,
        available: sql<number>`${algorithm.available(state, now, numbers)}`.as('available'),
      })
      .from(settled),
  )

  // Nothing is denied that takes nothing. A call that grants nothing, or gives back to a limit that is whole, writes nothing.
  const granted = builder.$with('granted').as((qb) =>
    qb
      .select({
        key,
        numbers,
        found,
        now,
        state,
        granted: sql<number>`case when ${rate} > 0
          then greatest(least(floor(${offered.available} / ${rate}), ${calls}), 0) else ${calls} end`.as(
          'granted',
        ),
        writes: sql<boolean>`case when ${rate} > 0 then ${offered.available} >= ${rate}
          else ${rate} < 0 and ${offered.available} < ${limit} end`.as('writes'),
      })
      .from(offered),
  )

  const amount = sql<number>`${rate} * ${granted.granted}`
  const next = algorithm.consume(state, amount, numbers)
  const decision = builder.$with('decision').as((qb) =>
    qb
      .select({
        key,
        numbers,
        found,
        now,
        granted: granted.granted,
        writes: granted.writes,
        next: forEach(algorithm.columns, (column) => sql<number>`${next[column]}`.as(`next_${column}`)),
      })
      .from(granted),
  )

  // On a grid, so that most updates leave the indexed column as it is and stay HOT.
  const grid = sql<number>`greatest(1000, floor(${decision.numbers.periodMs} / 8))`
  const expiresMs = sql<number>`(ceil((${algorithm.expiresAt(decision.next, decision.numbers)}) / ${grid}) * ${grid})`
  const written = {
    ...forEach(STATE_COLUMNS, (column) =>
      toColumn(column, algorithm.columns.includes(column) ? decision.next[column] : undefined),
    ),
    expiresAt: toColumn('expiresAt', expiresMs),
  }

  const updated = builder.$with('updated').as(
    builder
      .update(table)
      .set(written)
      .from(decision)
      .where(
        and(
          eq(table.prefix, sql.placeholder('prefix')),
          form === 'one' ? eq(table.key, sql.placeholder('key')) : undefined,
          eq(table.key, decision.key),
          decision.found,
          decision.writes,
        ),
      )
      .returning({ key: table.key }),
  )
  // In the order of the keys, as the locks: two statements with the same new keys would wait for each other otherwise.
  const inserted = builder.$with('inserted').as(
    builder
      .insert(table)
      .select((qb) =>
        qb
          .select({
            prefix: param<string>('prefix', 'text').as('prefix'),
            key: decision.key,
            ...forEach([...STATE_COLUMNS, 'expiresAt'] as const, (column) =>
              sql`${written[column]}`.as(column),
            ),
          })
          .from(decision)
          .where(and(not(decision.found), decision.writes))
          .orderBy(asc(decision.key)),
      )
      .onConflictDoNothing()
      .returning({ key: table.key }),
  )

  const query = (...settings: WithSubquery[]) =>
    builder
      .with(...settings, ...ctes, offered, granted, decision, updated, inserted)
      .select({
        key: decision.key,
        now: decision.now,
        granted: decision.granted,
        decided: sql<boolean>`${decision.found} or not ${decision.writes} or ${inserted.key} is not null`.as(
          'decided',
        ),
        available: sql<number>`${algorithm.available(decision.next, decision.now, decision.numbers)}`.as(
          'available',
        ),
        ...forEach(algorithm.columns, (column) => sql`${decision.next[column]}`.as(column)),
      })
      .from(decision)
      .leftJoin(inserted, eq(inserted.key, decision.key))

  if (commit === 'as the session') return render(query())
  const setting = commitSetting(commit)
  return render(query(setting).crossJoin(setting))
}

/** For this statement's own transaction only. It has to be joined: Postgres never runs a `select` that nothing refers to. */
function commitSetting(commit: 'async' | 'flushed'): WithSubquery {
  const value =
    commit === 'async'
      ? sql`'off'`
      : sql`case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end`
  return builder
    .$with('setting')
    .as((qb) =>
      qb
        .select({ setting: sql`set_config('synchronous_commit', ${value}, true)`.as('setting') })
        .from(sql`(values (1)) as one`),
    )
}
