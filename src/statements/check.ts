import { and, asc, eq, not, notExists, sql, type WithSubquery } from 'drizzle-orm'
import type { Rendered } from '../database/rendered.ts'
import { builder, renderChain } from './builder.ts'
import { forEach, STATE_COLUMNS, toColumn } from './columns.ts'
import { isTheRow, type Source, settledStates } from './settled.ts'

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
  const settled = settledStates({ ...source, lock: true })

  const offered = builder.$with('ratelimit_offered').as((qb) => {
    const { callPrefix, callKey, numbers, found, holds, now, state } = settled
    const available = sql<number>`${algorithm.available(state, now, numbers)}`.as('available')
    return qb.select({ callPrefix, callKey, numbers, found, holds, now, state, available }).from(settled.cte)
  })

  // Nothing is denied that takes nothing. What is granted is all where it fits, so that a tiny rate does not overflow.
  const granted = builder.$with('ratelimit_granted').as((qb) => {
    const { callPrefix, callKey, numbers, found, holds, now, state, available } = offered
    const { rate, calls, limit } = numbers
    return qb
      .select({
        ...{ callPrefix, callKey, numbers, found, now, state },
        granted: sql<number>`case when ${available} >= ${rate} * ${calls} or ${rate} <= 0 then ${calls}
          else floor(greatest(${available}, 0) / ${rate}) end`.as('granted'),
        // A call that grants nothing, or gives back to a limit that is whole, writes nothing.
        writes: sql<boolean>`case when ${rate} > 0
          then ${available} >= ${rate} or not (${holds} or ${algorithm.freshIsWhole(numbers)})
          else ${rate} < 0 and ${available} < ${limit} end`.as('writes'),
      })
      .from(offered)
  })

  const decision = builder.$with('ratelimit_decision').as((qb) => {
    const { callPrefix, callKey, numbers, found, now, state, writes } = granted
    const amount = sql<number>`${numbers.rate} * ${granted.granted}`
    const next = algorithm.consume(state, now, amount, numbers)
    return qb
      .select({
        ...{ callPrefix, callKey, numbers, found, now, writes },
        granted: granted.granted,
        next: forEach(algorithm.columns, (column) =>
          sql<number>`case when ${writes} then ${next[column]} else ${state[column]} end`.as(
            `next_${column}`,
          ),
        ),
      })
      .from(granted)
  })

  // On a grid, so that most updates leave the indexed column as it is and stay HOT.
  const grid = sql<number>`greatest(1000, floor(${decision.numbers.periodMs} / 8))`
  const expiresMs = sql<number>`(ceil((${algorithm.expiresAt(decision.next, decision.numbers)}) / ${grid}) * ${grid})`
  const written = {
    ...forEach(STATE_COLUMNS, (column) =>
      toColumn(column, algorithm.columns.includes(column) ? decision.next[column] : undefined),
    ),
    expiresAt: toColumn('expiresAt', expiresMs),
  }

  const updated = builder.$with('ratelimit_updated').as(
    builder
      .update(table)
      .set(written)
      .from(decision)
      .where(
        and(
          form === 'one' ? isTheRow(table) : undefined,
          eq(table.prefix, decision.callPrefix),
          eq(table.key, decision.callKey),
          decision.found,
          decision.writes,
        ),
      )
      .returning({ prefix: table.prefix, key: table.key }),
  )
  // A statement locks rows or inserts them, not both: each happens in the order of the keys, but one after the other they
  // are in none, and would deadlock with limitAll. What was not inserted is undecided.
  const holdsNoLock = notExists(builder.select({ one: sql`1` }).from(settled.locked))
  // In the order of the keys, as the locks: two statements with the same new keys would wait for each other otherwise.
  const inserted = builder.$with('ratelimit_inserted').as(
    builder
      .insert(table)
      .select((qb) =>
        qb
          .select({
            prefix: decision.callPrefix,
            key: decision.callKey,
            ...forEach([...STATE_COLUMNS, 'expiresAt'] as const, (column) =>
              sql`${written[column]}`.as(column),
            ),
          })
          .from(decision)
          .where(and(not(decision.found), decision.writes, holdsNoLock))
          .orderBy(asc(decision.callPrefix), asc(decision.callKey)),
      )
      .onConflictDoNothing()
      .returning({ prefix: table.prefix, key: table.key }),
  )

  const query = (...settings: WithSubquery[]) =>
    builder
      .with(...settings, ...settled.ctes, offered, granted, decision, updated, inserted)
      .select({
        place: decision.numbers.place,
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
      .leftJoin(inserted, and(eq(inserted.prefix, decision.callPrefix), eq(inserted.key, decision.callKey)))

  if (commit === 'as the session') return renderChain(query())
  const setting = commitSetting(commit)
  return renderChain(query(setting).crossJoin(setting))
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
