import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { builder, isDecidedRow, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { callsFrom } from '../../kernel/sql/calls.ts'
import { fromColumn, isOfKind, onGrid, toColumn } from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, transactionSettings } from '../../kernel/sql/guard.ts'
import { lockedRow } from '../../kernel/sql/rows.ts'
import { clockOf, type OwnSource } from '../../shared/own-rows.ts'

/** What becomes of a lease: it ends now, or lasts longer. */
export type LeaseAction = 'release' | 'extend'

export interface ChangeSource extends OwnSource {
  readonly action: LeaseAction
  /** Whether it waits for rows that other transactions hold. If not, it skips them. */
  readonly waits: boolean
}

/**
 * Always true, because a fence is a `bigint`. The planner assumes that a range matches few rows, and so finds
 * each row by the primary key.
 */
export const IS_RARE: SQL = sql.raw('slot.fence between 0::float8 and 1e19::float8')

const FOUND = name('ratelimit_found')
const CHANGED = name('ratelimit_changed')

/**
 * The statement that ends or extends leases, each if it is still the one with that fence and has not ended. It
 * has no answer for a slot whose row it could not lock.
 */
export function leaseStatement(source: ChangeSource): Statement {
  const { table, action, waits } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const clock = clockOf(source, parameters)
  const isSlot = [
    isTheRow(table, parameters, sql`call.key`),
    isOfKind(ROWS.slot, table),
    guarding.fits(table),
  ]
  const row = lockedRow(table, { ends: table.lastRefill }, isSlot, waits)
  const found = sql`select call.place, call.key, call.fence
    from ${callsFrom(parameters, ['key', 'fence'])} cross join lateral (${row}) as slot`
  const changed = builder
    .update(table)
    .set(action === 'release' ? { lastRefill: toColumn('lastRefill', clock) } : extended())
    .from(sql`${FOUND} as slot`)
    .where(
      and(
        isDecidedRow(table, parameters, sql`slot.key`),
        sql`${fromColumn('count', table.count)} = slot.fence`,
        sql`${fromColumn('lastRefill', table.lastRefill)} > ${clock}`,
        IS_RARE,
      ),
    )
    .returning({ key: table.key })
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [link('ratelimit_found', found), link('ratelimit_changed', changed)],
    columns: [name('place'), name('changed')],
    from: sql`(select place, key in (select key from ${CHANGED}) as changed from ${FOUND}) as answered`,
  })

  function extended() {
    const until = sql<number>`${clock} + ${parameters.number('leaseMs')}`
    const expires = toColumn('expiresAt', onGrid(until, parameters))
    return {
      lastRefill: toColumn('lastRefill', until),
      expiresAt: sql`greatest(${table.expiresAt}, ${expires})`,
    }
  }
}
