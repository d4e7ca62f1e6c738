import { and, isNull, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { builder, chain, type Link, link, name, Parameters } from './builder.ts'
import { callsFrom } from './calls.ts'
import { STATE_COLUMNS } from './columns.ts'
import { type Commit, transactionSettings } from './guard.ts'
import { isLocked, isOwn, PLACE, placeOf } from './places.ts'
import { insertRow, lockedRow, NO_STATE, newRows } from './rows.ts'

// For the rows of a list, which may have many prefixes.

const KEY_COLUMNS = ['prefix', 'key'] as const

/**
 * The statement that inserts the missing rows of a list, table after table. An inserted row has no state, and
 * is read as if it did not exist.
 *
 * If it `waits`, it also locks all of the rows. So a transaction locks them in the order of every list.
 *
 * If not, and another transaction is inserting one of the rows, it waits for three milliseconds and then fails
 * with 55P03.
 */
export function lockStatement(tables: readonly RateLimitTable[], commit: Commit, waits: boolean): Statement {
  const parameters = new Parameters()
  const settings = transactionSettings(commit, !waits)
  const links: Link[] = [...settings.links]
  for (const [place, table] of tables.entries()) {
    const inTurn =
      place === 0 ? settings.join : sql` where (select count(*) from ${name(madeAt(place - 1))}) >= 0`
    const from = sql`${callsFrom(parameters.scoped(`${place}.`), KEY_COLUMNS)}${inTurn}`
    const row = { ...NO_STATE, expiresAt: sql`now()` }
    const rows = newRows(sql`call.prefix`, sql`call.key`, row, from)
    links.push(link(madeAt(place), insertRow(table, rows, waits ? 'lock' : 'skip')))
  }
  const made = tables.map((_, place) => sql`(select count(*) from ${name(madeAt(place))})`)
  return parameters.render(chain(links, sql`select ${sql.join(made, sql` + `)} as made`))
}

function madeAt(place: number): string {
  return `ratelimit_made_${place}`
}

/** The statement that removes rows that were inserted and have no state. It never waits for a row. */
export function removeEmptyStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const isEmpty = and(...STATE_COLUMNS.map((column) => isNull(table[column])))
  const row = lockedRow(table, placeOf(table), [
    sql`${table.prefix} = call.prefix and ${table.key} = call.key and ${isEmpty} and ${isOwn(table)}`,
  ])
  const locked = sql`select ${PLACE} from ${callsFrom(parameters, KEY_COLUMNS)} cross join lateral (${row}) as stored`
  const removed = builder.delete(table).where(isLocked(table, EMPTY)).getSQL()
  return parameters.render(chain([link(EMPTY, locked)], removed))
}

const EMPTY = 'ratelimit_empty'
