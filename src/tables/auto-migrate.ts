import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../../schema/index.ts'
import { onceFor } from '../kernel/base/once.ts'
import type { Database } from '../kernel/database/database.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { onlyRow } from '../kernel/database/rows.ts'
import { execute } from '../kernel/database/run.ts'
import { quotedName, textLiteral } from '../kernel/database/table-name.ts'
import { createStatements, storageStatements } from './ddl.ts'

/** The tables that were found or created in a database. */
const migratedIn = /* @__PURE__ */ onceFor((_: Database) => new WeakSet<RateLimitTables>())

/**
 * Creates the missing tables of a database. Until one call has found or created them, each call checks by
 * itself, because in Workers a call cannot wait for the promise of another.
 */
export async function ensureTables(db: Database, tables: RateLimitTables): Promise<void> {
  const migrated = migratedIn(db)
  if (migrated.has(tables)) return
  await uncharged(createMissing(db, tables))
  migrated.add(tables)
}

/**
 * Any number, the same in every process. Two processes that both miss the tables take turns by this lock.
 * Without it, one of two concurrent `CREATE TABLE IF NOT EXISTS` fails with 23505.
 */
const ADVISORY_LOCK = 5_741_028_913_467

async function createMissing(db: Database, tables: RateLimitTables): Promise<void> {
  if (await exist(db, tables)) return
  // One statement, because not every driver accepts several at once. It does not touch a table that exists,
  // because altering it would wait for every transaction that uses it.
  const steps = [
    `perform pg_advisory_xact_lock(${ADVISORY_LOCK});`,
    ...(['ephemeral', 'durable'] as const).map((name) => {
      const statements = [...createStatements(tables[name]), ...storageStatements(tables[name], name)]
      return `if to_regclass(${textLiteral(quotedName(tables[name]))}::text) is null then ${statements.join('; ')}; end if;`
    }),
  ]
  try {
    await execute(db, sql.raw(`do ${textLiteral(`begin ${steps.join(' ')} end`)}`))
  } catch (error) {
    // A migration at the same time takes no advisory lock, and may have created the tables.
    if (!(await exist(db, tables))) throw error
  }
}

async function exist(db: Database, { ephemeral, durable }: RateLimitTables): Promise<boolean> {
  const rows = await execute(
    db,
    sql`select to_regclass(${quotedName(ephemeral)}::text) is not null
      and to_regclass(${quotedName(durable)}::text) is not null as present`,
  )
  return onlyRow(rows)?.['present'] === true
}
