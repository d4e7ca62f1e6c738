import { and, type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { ROWS } from '../algorithms/rows.ts'
import type { Statement } from '../database/statement.ts'
import { literal, quotedName } from '../tables/table-name.ts'
import { builder, isDecidedRow, isTheRow, type Link, link, name, Parameters } from './builder.ts'
import { fromColumn, isOfKind, onGrid, toColumn } from './columns.ts'
import { type Guard, guard, guardedStatement } from './guard.ts'
import { CLOCK_MS } from './levels.ts'
import { type Commit, settingsOf } from './setting.ts'

// A slot is a row. Its key is the limited key and the slot's number, `last_refill` is the end of its lease, and
// `count` is the fence of its last lease. The row with the number 0 says until when somebody waits for a slot.

export interface LeaseSource {
  readonly table: RateLimitTable
  readonly injectedClock: boolean
  readonly commit: Commit
  readonly guarded: boolean
}

export interface AcquireSource extends LeaseSource {
  /** Whether the lock of the row is the lease, so that it ends with the caller's transaction. */
  readonly joined: boolean
}

const CLOCK = name('ratelimit_clock')
const SLOTS = name('ratelimit_slots')
const OPEN = name('ratelimit_open')
const LOCKED = name('ratelimit_locked')
const MISSING = name('ratelimit_missing')
const TAKEN = name('ratelimit_taken')

/** How long a sign of somebody who waits counts. It is longer than the pause between two looks. */
const SIGN_MS = sql.raw('250::float8')

/** When a sign is renewed, so that few looks write. */
const RENEWED_MS = sql.raw('125::float8')

/** No lease has ended before. */
const LONG_AGO = sql.raw('0::float8')

/**
 * The statement that leases a slot: the free one with the lowest number. It waits for no row.
 *
 * `open` lists the numbers that may be leased: their leases have ended, and with all leases of higher numbers
 * they are at most as many as the limit. The higher ones may be left from a larger limit.
 *
 * `locked` skips the rows that others hold. `missing` makes a row if none could be locked. Its advisory lock
 * keeps two statements from inserting one row: the second would wait for the transaction of the first.
 */
export function acquireStatement(source: AcquireSource): Statement {
  const { table, joined } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const [prefix, key] = [parameters.text('prefix'), parameters.text('key')]
  const limit = parameters.integer('limit')
  const clock = source.injectedClock ? parameters.number('clock') : CLOCK_MS
  const now = sql`(select now from ${CLOCK})`
  const keyOf = (number: SQL) => sql`${key} || '#' || lpad(${number}::text, 4, '0')`
  const ends = sql`case when ${isOfKind(ROWS.concurrency, table)} then ${fromColumn('lastRefill', table.lastRefill)} else ${LONG_AGO} end`

  const slots = builder
    .select({
      number: sql`case when right(${table.key}, 4) ~ '^[0-9]+$' then right(${table.key}, 4)::integer end`.as(
        'number',
      ),
      ends: ends.as('ends'),
    })
    .from(table)
    .where(
      and(
        // The range is for the index. In some collations it has other keys too.
        sql`${table.prefix} = ${prefix} and ${table.key} between ${key} || '#0000' and ${key} || '#9999'
          and starts_with(${table.key}, ${key} || '#') and length(${table.key}) = length(${key}) + 5`,
        guarding.fits(table),
      ),
    )

  const isWaitedFor = (until: SQL) => sql`exists (select from ${SLOTS} where number = 0 and ends > ${until})`
  const open = sql`select number, is_old from (
      select series.number, slots.ends is not null as is_old, coalesce(slots.ends > clock.now, false) as is_leased,
        count(*) filter (where slots.ends > clock.now) over (order by series.number desc) as above
      from ${CLOCK} as clock
        cross join generate_series(1, greatest(${limit}, (select max(number) from ${SLOTS}))) as series (number)
        left join ${SLOTS} as slots on slots.number = series.number
    ) as numbered
    where number <= ${limit} and not is_leased and number::bigint + above <= ${limit}::bigint
      and (${parameters.integer('waited')} = 1 or not ${isWaitedFor(now)}) and ${fits(table, guarding)}`

  const row = builder
    .select({ key: table.key, count: fromColumn('count', table.count).as('count') })
    .from(table)
    .where(and(isDecidedRow(table, parameters, keyOf(name('number', 'old'))), sql`${ends} <= ${now}`))
    .for('update', { skipLocked: true })
  const locked = sql`select slot.key, slot.count
    from (select number from ${OPEN} where is_old order by number offset 0) as old
      cross join lateral (${row.getSQL()}) as slot
    limit 1`

  const place = sql.raw(literal(quotedName(table)))
  const missing = sql`select ${keyOf(name('number'))} as key from (
      select number from ${OPEN} where not is_old and not exists (select from ${LOCKED}) order by number offset 0
    ) as numbered
    where pg_try_advisory_xact_lock(hashtextextended(${place} || ${prefix} || ' ' || ${keyOf(name('number'))}, 0::bigint))
    limit 1`

  const taken = sql`select key, is_old, now, greatest(coalesce(count, 0::float8) + 1::float8, now * 1000::float8) as fence
    from (
      select key, is_old, count, ${clock} as now from (
        select key, true as is_old, count from ${LOCKED} union all select key, false, 0::float8 from ${MISSING}
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
    .where(and(isDecidedRow(table, parameters, sql`slot.key`), sql`slot.is_old`))
    .returning({ key: table.key })
  const made = sql`select ${prefix}, slot.key, ${next.count}, ${next.prevCount}, ${next.windowStart}, ${next.tokens},
      ${next.lastRefill}, ${expires} from ${TAKEN} as slot where not slot.is_old`
  const inserted = builder
    .insert(table)
    .select(made)
    .onConflictDoNothing({ target: [table.prefix, table.key] })
    .returning({ key: table.key })

  const links: Link[] = [
    link('ratelimit_clock', sql`select ${clock} as now`),
    link('ratelimit_slots', slots),
    link('ratelimit_open', open),
    link('ratelimit_locked', locked),
    link('ratelimit_missing', missing),
    link('ratelimit_taken', taken),
    link('ratelimit_updated', updated),
    link('ratelimit_inserted', inserted),
    // In a transaction, the row would stay locked.
    ...(joined ? [] : [link('ratelimit_sign', sign(table, parameters, guarding, isWaitedFor))]),
  ]
  return guardedStatement(parameters, guarding, settingsOf(source.commit), {
    links,
    columns: [
      ...['now', 'slot', 'fence'].map((column) => name(column)),
      sql`(select count(*) from ${OPEN}) as open`,
      sql`(select min(ends) from ${SLOTS} where number > 0 and ends > now) as ends`,
    ],
    from: sql`(${CLOCK} left join (
      select key as slot, fence from ${TAKEN}
      where key in (select key from ratelimit_updated union all select key from ratelimit_inserted)
    ) as written on true)`,
  })
}

/** The same as a condition of every statement. */
function fits(table: RateLimitTable, guarding: Guard): SQL {
  return guarding.fits(table) ?? sql`true`
}

/** Says that somebody waits, so that those who come later do not take the slot that becomes free. */
function sign(
  table: RateLimitTable,
  parameters: Parameters,
  guarding: Guard,
  isWaitedFor: (until: SQL) => SQL,
): SQL {
  const until = sql<number>`now + ${SIGN_MS}`
  const row = sql`select ${parameters.text('prefix')}, ${parameters.text('key')} || '#0000', 0::bigint, null::bigint,
      null::timestamptz, null::float8, ${toColumn('lastRefill', until)}, ${toColumn('expiresAt', onGrid(until, parameters))}
    from ${CLOCK}
    where ${parameters.integer('waits')} = 1 and not exists (select from ${TAKEN})
      and not ${isWaitedFor(sql`now + ${RENEWED_MS}`)} and ${fits(table, guarding)}`
  return builder
    .insert(table)
    .select(row)
    .onConflictDoUpdate({
      target: [table.prefix, table.key],
      set: {
        count: sql`excluded.count`,
        prevCount: sql`excluded.prev_count`,
        windowStart: sql`excluded.window_start`,
        tokens: sql`excluded.tokens`,
        lastRefill: sql`excluded.last_refill`,
        expiresAt: sql`greatest(${table.expiresAt}, excluded.expires_at)`,
      },
    })
    .getSQL()
}

/** What becomes of a lease: it ends now, or lasts longer. */
export type LeaseAction = 'release' | 'extend'

/** The statement that ends or extends a lease, if it is still the one with that fence and has not ended. */
export function leaseStatement(source: LeaseSource, action: LeaseAction): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const clock = source.injectedClock ? parameters.number('clock') : CLOCK_MS
  const changed = builder
    .update(table)
    .set(action === 'release' ? { lastRefill: toColumn('lastRefill', clock) } : extended())
    .where(
      and(
        isTheRow(table, parameters, parameters.text('slot')),
        sql`${fromColumn('count', table.count)} = ${parameters.number('fence')}`,
        isOfKind(ROWS.concurrency, table),
        sql`${fromColumn('lastRefill', table.lastRefill)} > ${clock}`,
        guarding.fits(table),
      ),
    )
    .returning({ key: table.key })
  return guardedStatement(parameters, guarding, settingsOf(source.commit), {
    links: [link('ratelimit_changed', changed)],
    columns: [name('changed')],
    from: sql`(select count(*) as changed from ratelimit_changed) as counted`,
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
