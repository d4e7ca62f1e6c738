import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { builder, isDecidedRow, isTheRow, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { exact, fromColumn, toColumn } from '../../kernel/sql/columns.ts'
import { guard, guardedStatement, transactionSettings } from '../../kernel/sql/guard.ts'
import { insertRow, NO_STATE, newRows } from '../../kernel/sql/rows.ts'
import { clockOf, type OwnSource } from '../../shared/own-rows.ts'
import { endOf, expiryOf, headExpiryOf, isMember, lasts, rowsOfKey, seenIn } from './rows.ts'

const ROWS = name('ratelimit_rows')
const CLOCK = name('ratelimit_clock')
const COUNTED = name('ratelimit_counted')
const DECIDED = name('ratelimit_decided')

/** The statement that locks the head of a key, and makes it if it is missing. */
export function lockStatement(source: OwnSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const now = clockOf(source, parameters)
  const row = {
    ...addedAt(now, sql<number>`0`),
    expiresAt: toColumn('expiresAt', headExpiryOf(now, parameters)),
  }
  const rows = newRows(parameters.text('prefix'), parameters.text('head'), row, sql`(select) as one`)
  return parameters.render(insertRow(table, rows, 'lock'))
}

/** The state of a row that is written now. The head counts nobody. */
function addedAt(now: SQL<number>, count: SQL<number>) {
  const state = { count: toColumn('count', count), windowStart: toColumn('windowStart', now) }
  return { ...NO_STATE, ...state, lastRefill: toColumn('lastRefill', now) }
}

/**
 * The statement that adds a member to a key whose head is locked. It locks the other members too, because one
 * of them may be added again at this moment, and reads the clock after that.
 */
export function addStatement(source: OwnSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const fits = guarding.fits(table)
  const [prefix, head, own] = [parameters.text('prefix'), parameters.text('head'), parameters.text('key')]
  const limit = parameters.number('limit')
  const now = name('now')
  const locked = sql`select ${table.key} as key, ${fromColumn('lastRefill', table.lastRefill)} as seen, ${table.expiresAt} as expires
    from ${table} where ${and(rowsOfKey(table, parameters), fits)} order by ${table.key} for update`
  const counted = sql`select * from (select key, ${endOf(healed(parameters), parameters)} as ends, now from ${ROWS} cross join ${CLOCK}) as each
    where key <> ${head} and ends > now`
  const others = sql`select * from ${COUNTED} where key <> ${own}`
  const decided = sql`select now, others, known, lasts, (select ends from (${others}) as other order by ends
      offset greatest(others - ${limit}, 0::float8)::bigint limit 1) as frees, known or others < ${limit} as fits
    from (select now, (select count(*) from (${others}) as other)::float8 as others,
      exists (select from ${COUNTED} where key = ${own}) as known,
      exists (select from ${ROWS} where key = ${head} and ${lasts(sql`expires`, now, parameters)}) as lasts
      from ${CLOCK}) as found`
  const row = {
    ...addedAt(now, sql<number>`case when written.key = ${own} then 1 else 0 end`),
    expiresAt: toColumn(
      'expiresAt',
      sql`case when written.key = ${own} then ${expiryOf(now, parameters)} else ${headExpiryOf(now, parameters)} end`,
    ),
  }
  // Only a new member changes how many others may come.
  const isWritten = and(sql`fits and (written.key = ${own} or not (known and lasts))`, fits)
  const from = sql`${DECIDED} cross join (values (${own}), (${head})) as written (key) where ${isWritten}`
  const written = builder
    .insert(table)
    .select(newRows(prefix, sql`written.key`, row, from))
    .onConflictDoUpdate({
      target: [table.prefix, table.key],
      set: {
        count: sql`excluded.count`,
        windowStart: sql`case when (select known from ${DECIDED}) then ${table.windowStart} else excluded.window_start end`,
        lastRefill: sql`excluded.last_refill`,
        expiresAt: sql`greatest(${table.expiresAt}, excluded.expires_at)`,
      },
    })
    .returning({ key: table.key })
  const numbers = exact(now, sql`others`, sql`coalesce(frees, 0::float8)`)
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [
      link('ratelimit_rows', locked),
      link(
        'ratelimit_clock',
        sql`select ${clockOf(source, parameters)} as now from (select count(*) from ${ROWS}) as locked`,
      ),
      link('ratelimit_counted', counted),
      link('ratelimit_decided', decided),
      link('ratelimit_written', written),
    ],
    columns: [sql`${numbers} as numbers`, name('known'), name('fits')],
    from: DECIDED,
  })
}

/**
 * The statement that adds a member again that counts. It takes nobody's place, so it locks nothing but its row.
 * It reads the clock when it has that lock: what waited for the lock before may have given the place away. It
 * has no answer if the member does not count, or would count for longer than the head of its key stays.
 */
export function renewStatement(source: OwnSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const fits = guarding.fits(table)
  const [own, head] = [parameters.text('key'), parameters.text('head')]
  const locked = sql`select ${table.key} as key, ${fromColumn('lastRefill', table.lastRefill)} as seen
    from ${table} where ${and(isTheRow(table, parameters, own), isMember(table), fits)} for update`
  const decided = sql`select key, greatest(${healed(parameters)}, now) as now from (
      select key, seen, ${clockOf(source, parameters)} as now from ${ROWS}
    ) as timed where ${endOf(healed(parameters), parameters)} > now and exists (select from ${table}
      where ${isTheRow(table, parameters, head)} and ${lasts(sql`${table.expiresAt}`, sql`greatest(${healed(parameters)}, now)`, parameters)})`
  const next = {
    lastRefill: toColumn('lastRefill', name('now', 'decided')),
    expiresAt: sql`greatest(${table.expiresAt}, ${toColumn('expiresAt', expiryOf(name('now', 'decided'), parameters))})`,
  }
  const renewed = builder
    .update(table)
    .set(next)
    .from(sql`${DECIDED} as decided`)
    .where(and(isDecidedRow(table, parameters, sql`decided.key`), fits))
    .returning({ now: sql`decided.now`.as('now') })
  const others = sql`select count(*)::float8 from ${table} where ${rowsOfKey(table, parameters)}
    and ${table.key} not in (${own}, ${head}) and ${endOf(seenIn(table, name('now'), parameters), parameters)} > now`
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [
      link('ratelimit_rows', locked),
      link('ratelimit_decided', decided),
      link('ratelimit_renewed', renewed),
    ],
    columns: [sql`${exact(name('now'), sql`(${others})`)} as numbers`],
    from: sql`ratelimit_renewed`,
  })
}

/** When a locked member was added last. A time that the clock cannot have shown yet heals to now. */
function healed(parameters: Parameters) {
  return sql<number>`case when seen - now > ${parameters.number('windowMs')} then now else seen end`
}
