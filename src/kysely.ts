import { PgDialect } from 'drizzle-orm/pg-core'
import { CompiledQuery } from 'kysely'
import type { Database } from './database/database.ts'

/**
 * The members of `Kysely` and `Transaction` that are needed. Their own types would need the application's
 * schema.
 */
export interface KyselyDatabase {
  readonly isTransaction: boolean
  executeQuery(query: CompiledQuery): Promise<unknown>
  transaction(): {
    setIsolationLevel(level: 'read committed'): {
      execute<T>(work: (trx: KyselyDatabase) => Promise<T>): Promise<T>
    }
  }
}

/**
 * A Kysely database or transaction as the limiter's `db` or `tx`.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { fromKysely } from 'drizzle-ratelimit/kysely'
 * import { kysely } from './app.ts'
 *
 * const limiter = Ratelimit.fixedWindow(1000, '1d')
 * const credits = new Ratelimit({ db: fromKysely(kysely), limiter, prefix: 'credits', durable: true })
 * await kysely.transaction().execute(async (trx) => {
 *   await credits.limit('org:1', { tx: fromKysely(trx) })
 * })
 * ```
 */
export function fromKysely(kysely: KyselyDatabase): Database {
  const known = databases.get(kysely) ?? databaseOf(kysely)
  databases.set(kysely, known)
  return known
}

/** One for each, so that limiters of one Kysely are limiters of one database. */
const databases = new WeakMap<KyselyDatabase, Database>()

function databaseOf(kysely: KyselyDatabase): Database {
  const dialect = new PgDialect()
  const database: Database = {
    execute: (query) => {
      const { sql, params } = dialect.sqlToQuery(query)
      return kysely.executeQuery(CompiledQuery.raw(sql, params))
    },
    transaction: (work) =>
      kysely
        .transaction()
        .setIsolationLevel('read committed')
        .execute((trx) => work(fromKysely(trx))),
    refreshMaterializedView: undefined,
  }
  return kysely.isTransaction ? { ...database, rollback: undefined } : database
}
