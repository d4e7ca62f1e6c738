import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { quotedName, textLiteral } from '../../kernel/database/table-name.ts'
import { builder, isDecidedRow, type Link, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { callsFrom } from '../../kernel/sql/calls.ts'
import { answered, fromColumn, onGrid, toColumn } from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, transactionSettings } from '../../kernel/sql/guard.ts'
import { CLOCK_MS } from '../../kernel/sql/levels.ts'
import { insertRow, lockedRow, newRows } from '../../kernel/sql/rows.ts'
import { clockOf, type OwnSource } from '../../shared/own-rows.ts'
import { HAS_HOLDERS, holdSlot, lockName, numbersHeld } from './held-slots.ts'
import { IS_RARE } from './lease.ts'
import { leaseEnd, slotsOfKey } from './slot-rows.ts'
import { HAS_USE, IS_KEPT, turn, turnOf } from './turns.ts'

export interface AcquireSource extends OwnSource {
  /** Whether the lock of the row is the lease, so that it ends with the caller's transaction. */
  readonly joined: boolean
}

const CLOCK = name('ratelimit_clock')
const KEYS = name('ratelimit_keys')
const LOCKED = name('ratelimit_locked')
const MISSING = name('ratelimit_missing')
const TAKEN = name('ratelimit_taken')

/**
 * The statement that leases slots of keys, for each of `calls` one: the free ones with the lowest numbers. It
 * waits for no slot.
 *
 * A number may be leased if its lease has ended, and it and the leases of higher numbers are at most as many as
 * the limit. The higher ones may be left from a larger limit. So `open` numbers may be leased. What open
 * transactions hold is leased, too. A transaction that holds a number gets that one again. If the next slot is
 * kept for others, one fewer than are open is `wanted`.
 *
 * `locked` skips the rows that others hold. `missing` makes rows for what could not be locked. Its advisory
 * lock keeps two statements from inserting one row: the second would wait for the transaction of the first.
 */
export function acquireStatement(source: AcquireSource): Statement {
  const { table, joined } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const prefix = parameters.text('prefix')
  const limit = parameters.integer('limit')
  const clock = clockOf(source, parameters)
  const now = sql`(select now from ${CLOCK})`
  const keyOf = (number: SQL) => sql`of_key.key || '#' || lpad(${number}::text, 4, '0')`
  const numbers = sql`select ${lockName(table, prefix, sql`call.key`)} as lock_name,
      min(ends) filter (where number > 0 and ends > now) as ends,
      max(ends) filter (where number = 0) as kept_until, max(count) filter (where number = 0) as kept_for,
      coalesce(pg_catalog.array_agg(number) filter (where number > 0 and ends > now), '{}') as leased,
      coalesce(pg_catalog.array_agg(number order by number) filter (where number > 0 and ends <= now), '{}') as free
    from (${slotsOfKey(table, prefix)}) as slot`
  const none = sql`'{}'::integer[]`
  const held = joined
    ? sql`${numbersHeld('others')} as held, ${numbersHeld('this transaction')} as own`
    : sql`case when ${HAS_HOLDERS} then ${numbersHeld('others')} else ${none} end as held, ${none} as own`
  // The barriers let each lock be looked at once.
  const seen = sql`select place, key, calls::bigint as calls, now, at, ends, since, kept_until, kept_for, lock_name, free, own, held,
      case when pg_catalog.cardinality(held) = 0 then leased else pg_catalog.array_cat(leased, array(
        select number from pg_catalog.unnest(held) as other (number) where number <> all(leased)
      )) end as leased
    from (
      select *, ${held}
      from ${callsFrom(parameters, ['key', 'calls', 'since'])} cross join ${CLOCK} cross join lateral (${numbers}) as numbers
      ${guarding.links.length > 0 ? sql`where ${guarding.fits(table)}` : sql``} offset 0
    ) as found offset 0`
  const turned = sql`select *, greatest(${limit} - pg_catalog.cardinality(leased), 0) as open, ${turnOf(limit)} as turn
    from (${seen}) as seen`
  const keys = sql`select place, key, calls, now, at, turn, kept_for, kept_until, ${IS_KEPT} as is_kept, lock_name, leased, own, open,
      case when pg_catalog.cardinality(held) = 0 then ends - now end as lasts,
      case when pg_catalog.cardinality(own) = 0 then free else own end as free,
      greatest(least(calls, open - case when ${IS_KEPT} and kept_for < turn and ${HAS_USE} then 1 else 0 end), 0) as wanted
    from (${turned}) as turned`

  const isBelow = sql`number::bigint + (select count(*) from pg_catalog.unnest(of_key.leased) as lease (other) where other > number)
    <= ${limit}::bigint`
  const row = lockedRow(table, { key: table.key, count: fromColumn('count', table.count).as('count') }, [
    isDecidedRow(table, parameters, keyOf(name('number'))),
    sql`${leaseEnd(table)} <= ${now}`,
  ])
  const locked = sql`select place, slot.key, slot.count from ${KEYS} as of_key cross join lateral (
      select stored.key, stored.count
      from (select pg_catalog.unnest(of_key.free) as number offset 0) as old cross join lateral (${row}) as stored
      where (pg_catalog.cardinality(of_key.own) > 0 or ${isBelow}) limit of_key.wanted
    ) as slot where wanted > 0`

  const place = sql.raw(textLiteral(quotedName(table)))
  const missing = sql`select place, slot.key from ${KEYS} as of_key cross join lateral (
      select (select count(*) from ${LOCKED} as found where found.place = of_key.place) as found offset 0
    ) as counted cross join lateral (
      select numbered.key from (
        select ${keyOf(name('number'))} as key from (select generate_series(1, ${limit}) as number offset 0) as series
        where number <> all(of_key.leased) and number <> all(of_key.free) and ${isBelow} offset 0
      ) as numbered
      where pg_try_advisory_xact_lock(hashtextextended(${place} || ${prefix} || ' ' || numbered.key, 0::bigint))
      limit greatest(of_key.wanted - counted.found, 0)
    ) as slot where found < wanted and pg_catalog.cardinality(of_key.own) = 0`

  const taken = sql`select place, key, is_old, now, greatest(coalesce(count, 0::float8) + 1::float8, now * 1000::float8) as fence
    from (
      select place, key, is_old, count, ${clock} as now from (
        select place, key, true as is_old, count from ${LOCKED} union all select place, key, false, 0::float8 from ${MISSING}
      ) as slot offset 0
    ) as timed`

  const until = sql<number>`now + ${parameters.number('leaseMs')}`
  const expires = toColumn('expiresAt', onGrid(until, parameters))
  const next = {
    count: toColumn('count', name('fence', 'slot')),
    prevCount: toColumn('prevCount', undefined),
    windowStart: toColumn('windowStart', undefined),
    tokens: toColumn('tokens', undefined),
    lastRefill: toColumn('lastRefill', joined ? name('now', 'slot') : until),
  }
  const updated = builder
    .update(table)
    .set({ ...next, expiresAt: sql`greatest(${table.expiresAt}, ${expires})` })
    .from(sql`${TAKEN} as slot`)
    .where(and(isDecidedRow(table, parameters, sql`slot.key`), sql`slot.is_old and ${IS_RARE}`))
    .returning({ key: table.key })
  const isNew = sql`${TAKEN} as slot where not slot.is_old`
  const inserted = insertRow(table, newRows(prefix, sql`slot.key`, { ...next, expiresAt: expires }, isNew))

  const links: Link[] = [
    link('ratelimit_clock', sql`select ${clock} as now, ${CLOCK_MS} as at`),
    link('ratelimit_keys', keys),
    link('ratelimit_locked', locked),
    link('ratelimit_missing', missing),
    link('ratelimit_taken', taken),
    link('ratelimit_updated', updated),
    link('ratelimit_inserted', inserted),
    // In a transaction, the row would stay locked.
    ...(joined ? [] : [link('ratelimit_turn', turn(table, parameters, KEYS, TAKEN))]),
  ]
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links,
    columns: [
      ...['place', 'open', 'next', 'slot'].map((column) => name(column)),
      ...answered(['lasts', 'at', 'fence']),
      ...(joined
        ? [sql`case when slot is not null then ${holdSlot(sql`right(slot, 4)::bigint`)} end as held`]
        : []),
    ],
    from: sql`(select of_key.place, open, lasts, at, kept_for is null or not is_kept or turn <= kept_for as next, slot, fence,
      lock_name from ${KEYS} as of_key left join (
      select place, key as slot, fence from ${TAKEN}
      where key in (select key from ratelimit_updated union all select key from ratelimit_inserted)
    ) as written on written.place = of_key.place) as answered`,
  })
}
