import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../../schema/index.ts'
import type { Database } from '../database/database.ts'
import { onlyRow } from '../database/rows.ts'
import { execute } from '../database/run.ts'
import { createStatements, shapeOf, storageStatements } from './ddl.ts'
import { literal } from './table-name.ts'

const migrated = new WeakMap<Database, WeakSet<RateLimitTables>>()

/**
 * Creates the tables of a database where they are missing. Calls look for themselves until one has found or
 * made them: in Workers they cannot wait for the promise of another.
 */
export async function ensureTables(db: Database, tables: RateLimitTables): Promise<void> {
  const ofDatabase = migrated.get(db) ?? new WeakSet<RateLimitTables>()
  migrated.set(db, ofDatabase)
  if (ofDatabase.has(tables)) return
  await createMissing(db, tables)
  ofDatabase.add(tables)
}

/**
 * Any number that is the same in every process, so that two processes that find the tables missing take turns.
 * Without the lock, one of two concurrent `CREATE TABLE IF NOT EXISTS` fails with 23505.
 */
const ADVISORY_LOCK = 5_741_028_913_467

async function createMissing(db: Database, tables: RateLimitTables): Promise<void> {
  if (await exist(db, tables)) return
  // One statement, because not every driver takes several at once. A table that exists is left alone:
  // altering it would wait for every transaction that uses it.
  const steps = [
    `perform pg_advisory_xact_lock(${ADVISORY_LOCK});`,
    ...(['ephemeral', 'durable'] as const).map((name) => {
      const statements = [...createStatements(tables[name]), ...storageStatements(tables[name], name)]
      const { quoted } = shapeOf(tables[name])
      return `if to_regclass(${literal(quoted)}::text) is null then ${statements.join('; ')}; end if;`
    }),
  ]
  try {
    await execute(db, sql.raw(`do ${literal(`begin ${steps.join(' ')} end`)}`))
  } catch (error) {
    // A migration at the same time takes no advisory lock. If it has made the tables, all is well.
    if (!(await exist(db, tables))) throw error
  }
}

async function exist(db: Database, { ephemeral, durable }: RateLimitTables): Promise<boolean> {
  const rows = await execute(
    db,
    sql`select to_regclass(${shapeOf(ephemeral).quoted}::text) is not null
      and to_regclass(${shapeOf(durable).quoted}::text) is not null as present`,
  )
  return onlyRow(rows)?.['present'] === true
}
