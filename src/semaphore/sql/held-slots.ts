import { type SQL, sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import { quotedName, textLiteral } from '../../kernel/database/table-name.ts'
import { name } from '../../kernel/sql/builder.ts'

// A transaction that holds a slot holds two advisory locks, because others see neither its new rows nor its
// changes: one on the name of the key, and one on the number of the slot, which is the name plus the number.

/** The last twelve bits of a name are for the number of a slot, which is at most 1,000. */
const SLOT_NUMBERS = sql.raw('4095::bigint')

/** The name of a key for advisory locks. Its last bits are 0. */
export function lockName(table: RateLimitTable, prefix: SQL, key: SQL): SQL {
  const place = sql.raw(textLiteral(quotedName(table)))
  // Another seed than that of the locks on new rows.
  return sql`hashtextextended(${place} || ${prefix} || ' ' || ${key}, 1::bigint) & ~${SLOT_NUMBERS}`
}

/** Whether other transactions hold slots of the key. The lock of the session ends before anybody can wait. */
export const HAS_HOLDERS: SQL = sql.raw(
  'case when pg_try_advisory_lock(lock_name) then not pg_advisory_unlock(lock_name) else true end',
)

const NUMBER = sql`(objid::bigint & ${SLOT_NUMBERS})::integer`

/** The locks on numbers of the key's slots, among all locks of the server. */
const LOCKS = sql`from pg_catalog.pg_locks
    where locktype = 'advisory' and objsubid = 1 and granted
      and database = (select oid from pg_catalog.pg_database where datname = current_database())
      and (classid::bigint << 32 | objid::bigint) & ~${SLOT_NUMBERS} = lock_name and objid::bigint & ${SLOT_NUMBERS} > 0`

/**
 * The numbers of the key's slots that open transactions hold. It reads all locks of the server, so it is for
 * keys that have holders.
 */
export function numbersHeld(by: 'others' | 'this transaction'): SQL {
  const pid = sql.raw(by === 'others' ? 'is distinct from' : '=')
  return sql`array(select ${NUMBER} ${LOCKS}
      and pid ${pid} pg_backend_pid())`
}

/** The same numbers as rows, each with whether this transaction holds it. It takes no lock. */
export const SLOTS_HELD: SQL = sql`select ${NUMBER} as number, bool_or(pid is not distinct from pg_backend_pid()) as own
    ${LOCKS} group by 1`

/** Makes the transaction hold the slot with the number until it ends. */
export function holdSlot(number: SQL): SQL {
  const locks = [name('lock_name'), sql`lock_name | ${number}`]
  return sql.join(
    locks.map((lock) => sql`pg_advisory_xact_lock_shared(${lock})::text`),
    sql` || `,
  )
}
