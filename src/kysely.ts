import type { SQL } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { type ColumnType, CompiledQuery, type Migration, type RawBuilder, sql } from 'kysely'
import type { RateLimitTables } from '../schema/index.ts'
import type { AnyCredits } from './any-credits.ts'
import type { Database } from './kernel/database/database.ts'
import { SHIPPED } from './kernel/database/table-name.ts'
import type { Limiter } from './kernel/limits/algorithm.ts'
import { checkTablesGiven } from './kernel/options/checks.ts'
import { checkOption } from './kernel/options/validate.ts'
import { columnsOf } from './reports/row.ts'
import * as rowNumbers from './reports/row-numbers.ts'
import { tableShapeOf } from './tables/ddl.ts'
import { storageSql, tableSql } from './tables/table-sql.ts'

/** A `bigint` as drivers return it: pg and postgres.js as a string, PGlite as a number. */
type Count = ColumnType<string | number | bigint | null, number | bigint | string | null | undefined>
type TimestampColumn = ColumnType<Date | null, Date | string | null | undefined>

/** A row of one of the limiter's tables, for Kysely. Each algorithm uses some of the columns. */
export interface RateLimitRow {
  /** The limiter's namespace. */
  prefix: string
  /** The limited key. */
  key: string
  /** Requests in the current window. */
  count: Count
  /** Requests in the window before it. */
  prev_count: Count
  /** When the current window began. */
  window_start: TimestampColumn
  /** Tokens left in a bucket. */
  tokens: ColumnType<number | null, number | null | undefined>
  /** The time up to which the refills of a bucket are counted. */
  last_refill: TimestampColumn
  /** The time after which the row may be deleted. */
  expires_at: ColumnType<Date, Date | string>
}

/**
 * The limiter's two tables, for the `Database` interface of your Kysely. The parameters are their names, with a
 * Postgres schema as `schema.name`.
 *
 * @example
 * ```ts
 * import type { RateLimitDatabase } from 'drizzle-ratelimit/kysely'
 *
 * interface Database extends RateLimitDatabase {
 *   jobs: { name: string }
 * }
 * interface Other extends RateLimitDatabase<'limits.rate_limit_ephemeral', 'limits.rate_limit_durable'> {}
 * ```
 */
export type RateLimitDatabase<
  Ephemeral extends string = 'rate_limit_ephemeral',
  Durable extends string = 'rate_limit_durable',
> = Record<Ephemeral | Durable, RateLimitRow>

/**
 * A migration for Kysely's `Migrator`. `up` creates the two tables with their storage parameters. `down` drops
 * them and keeps their Postgres schema.
 *
 * @param tables Default: the two tables of the package.
 * @throws RatelimitError `INVALID_OPTION`
 *
 * @example
 * ```ts
 * // migrations/2026-11-21-rate-limit.ts
 * import type { Migration } from 'kysely'
 * import { rateLimitMigration } from 'drizzle-ratelimit/kysely'
 *
 * export const { up, down }: Migration = rateLimitMigration()
 * ```
 */
export function rateLimitMigration(tables: RateLimitTables = SHIPPED): Required<Migration> {
  checkTablesGiven(tables)
  const names = [tables.ephemeral, tables.durable].map((table) => tableShapeOf(table).quoted)
  return {
    up: (db) => runAll(db, [...tableSql(tables), ...storageSql(tables)]),
    down: (db) => runAll(db, [`DROP TABLE ${names.join(', ')}`]),
  }
}

async function runAll(
  db: Pick<KyselyDatabase, 'executeQuery'>,
  statements: readonly string[],
): Promise<void> {
  for (const statement of statements) await db.executeQuery(CompiledQuery.raw(statement))
}

/**
 * The members of `Kysely` and `Transaction` that the limiter needs. Their own types would need the
 * application's schema.
 */
export interface KyselyDatabase {
  /** Whether it is a transaction. The limiter then joins it. */
  readonly isTransaction: boolean
  /** Runs one statement. */
  executeQuery(query: CompiledQuery): Promise<unknown>
  /** Begins a transaction. */
  transaction(): {
    setIsolationLevel(level: 'read committed'): {
      execute<T>(work: (trx: KyselyDatabase) => Promise<T>): Promise<T>
    }
  }
}

/**
 * A Kysely database or transaction as the limiter's `db` or `tx`.
 *
 * @throws RatelimitError `INVALID_OPTION`
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
  checkOption(
    typeof kysely?.executeQuery === 'function',
    'fromKysely needs a database or transaction of Kysely.',
  )
  const known = databases.get(kysely) ?? databaseOf(kysely)
  databases.set(kysely, known)
  return known
}

/** One database for each Kysely, so that limiters with the same Kysely have the same `db`. */
const databases = new WeakMap<KyselyDatabase, Database>()

function databaseOf(kysely: KyselyDatabase): Database {
  const dialect = new PgDialect()
  const database = {
    execute: (query: SQL) => {
      const { sql, params } = dialect.sqlToQuery(query)
      return kysely.executeQuery(CompiledQuery.raw(sql, params))
    },
    refreshMaterializedView: undefined,
  }
  if (!kysely.isTransaction) {
    const begin = () => kysely.transaction().setIsolationLevel('read committed')
    return { ...database, transaction: (work) => begin().execute((trx) => work(fromKysely(trx))) }
  }
  return {
    ...database,
    transaction: (work) => inSavepoint(kysely, () => work(fromKysely(kysely))),
    rollback: undefined,
  }
}

/** A transaction of Kysely begins no other one, so this is SQL. */
async function inSavepoint<T>(kysely: KyselyDatabase, work: () => Promise<T>): Promise<T> {
  await runAll(kysely, ['savepoint ratelimit'])
  try {
    const result = await work()
    await runAll(kysely, ['release savepoint ratelimit'])
    return result
  } catch (reason) {
    // A rollback keeps the savepoint, and its name would hide an outer one.
    await runAll(kysely, ['rollback to savepoint ratelimit', 'release savepoint ratelimit'])
    throw reason
  }
}

/**
 * The usage of a row under the limit, as an expression for a Kysely query of your own.
 *
 * @param table The name of the table in the query, or its alias.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_CLOCK`
 *
 * @example
 * ```ts
 * import { calendarWindow } from 'drizzle-ratelimit/calendar'
 * import { type RateLimitDatabase, usedOf } from 'drizzle-ratelimit/kysely'
 * import type { Kysely } from 'kysely'
 *
 * declare const db: Kysely<RateLimitDatabase & { orgs: { id: string } }>
 * const used = usedOf('stored', calendarWindow(1000, 'month'))
 * await db
 *   .selectFrom('orgs')
 *   .leftJoin('rate_limit_durable as stored', (join) =>
 *     join.onRef('stored.key', '=', 'orgs.id').on('stored.prefix', '=', 'reports'),
 *   )
 *   .select(['orgs.id', used.as('used')])
 *   .orderBy('used', 'desc')
 *   .limit(20)
 *   .execute()
 * ```
 */
export function usedOf(
  table: string,
  limiter: Limiter | AnyCredits,
  options?: rowNumbers.RowOptions,
): RawBuilder<number> {
  return inKysely(rowNumbers.usedOf(columnsIn(table), limiter, options))
}

/** The whole units that a row has left under the limit, as an expression; see {@link usedOf}. */
export function remainingOf(
  table: string,
  limiter: Limiter | AnyCredits,
  options?: rowNumbers.RowOptions,
): RawBuilder<number> {
  return inKysely(rowNumbers.remainingOf(columnsIn(table), limiter, options))
}

/** The Unix milliseconds at which the limit of a row is full again, as an expression; see {@link usedOf}. */
export function resetOf(
  table: string,
  limiter: Limiter | AnyCredits,
  options?: rowNumbers.RowOptions,
): RawBuilder<number> {
  return inKysely(rowNumbers.resetOf(columnsIn(table), limiter, options))
}

function columnsIn(table: unknown): rowNumbers.RowColumns {
  checkOption(typeof table === 'string', 'The table must be the name of a table in the query, or its alias.')
  return columnsOf(table)
}

/** The expression for Kysely, with its numbers written into the text. */
function inKysely(expression: SQL<number>): RawBuilder<number> {
  return sql<number>`${sql.raw(new PgDialect().sqlToQuery(expression.inlineParams()).sql)}`
}
