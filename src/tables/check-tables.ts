import type { RateLimitTable, RateLimitTables } from '../../schema/index.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { warnOnce } from '../kernel/base/warn.ts'
import type { Database } from '../kernel/database/database.ts'
import { quote, SHIPPED } from '../kernel/database/table-name.ts'
import { checkDatabase, checkTablesGiven } from '../kernel/options/checks.ts'
import { printable } from '../shared/readable.ts'
import { type FoundIndex, type FoundStore, type FoundTable, readCatalogs } from './catalogs.ts'
import {
  columnDefinition,
  createIndex,
  createPolicy,
  createStatements,
  primaryKeyDefinition,
  STORAGE_PARAMETERS,
  secure,
  setParameters,
  setPersistence,
  setStatistics,
  storageStatements,
  tableShapeOf,
} from './ddl.ts'
import { STORAGE_NAMES, type StorageOptions } from './table-sql.ts'

/** One difference between the database and the expected tables. */
export interface TableDifference {
  /** One sentence that begins with the table's name. Control characters in names are replaced by `\ufffd`. */
  readonly message: string
  /**
   * The statements that remove the difference, one by one; undefined if the limiter cannot know them. If rows
   * are in the way, such as a null in a column that must be NOT NULL, Postgres refuses and changes nothing.
   */
  readonly sql: readonly string[] | undefined
}

/**
 * Compares the tables in the database with the expected ones.
 *
 * Neon empties UNLOGGED tables whenever it stops. On Neon, `console.warn` warns of that once. It is not a
 * difference.
 *
 * @param tables Default: the two tables of the package.
 * @param options With `logged: true` the ephemeral table should be logged, as `storageSql` then makes it.
 * @returns Every difference with the SQL that removes it, to run in this order; empty if there is none.
 * @throws RatelimitError `INVALID_OPTION`; `DATABASE` if the catalogs cannot be read.
 *
 * @example
 * ```ts
 * import { checkTables } from 'drizzle-ratelimit'
 * import { db } from './app.ts'
 *
 * for (const { message, sql } of await checkTables(db)) console.warn(message, sql)
 * ```
 */
export async function checkTables(
  db: Database,
  tables: RateLimitTables = SHIPPED,
  options: StorageOptions = {},
): Promise<TableDifference[]> {
  checkDatabase(db)
  checkTablesGiven(tables)
  checkOptions(options, STORAGE_NAMES)
  return [
    ...(await differences(db, tables.ephemeral, 'ephemeral', options)),
    ...(await differences(db, tables.durable, 'durable', options)),
  ]
}

async function differences(
  db: Database,
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
  options: StorageOptions,
): Promise<TableDifference[]> {
  const { about, quoted } = tableShapeOf(table)
  const found = await readCatalogs(db, quoted)
  if (!found) {
    const means = "`export * from 'drizzle-ratelimit/schema'` or tables of your own"
    const filters = "drizzle-kit's schemaFilter and tablesFilter have to let it pass"
    const message = `${about} is missing: export it from your Drizzle schema (${means}), and migrate. If you push, ${filters}.`
    return [
      {
        message: printable(message),
        sql: [...createStatements(table), ...storageStatements(table, persistence, options.logged)],
      },
    ]
  }
  if (found.onNeon && found.stores.some((store) => store.persistence === 'u')) warnOfNeon()
  return [
    ...missingDifferences(table, found),
    ...indexDifferences(table, found),
    ...notNullDifferences(table, found),
    ...heirDifferences(table, found),
    ...policyDifferences(table, found),
    ...privilegeDifferences(found),
    ...found.stores.flatMap((store) => [...storageDifferences(table, persistence, options, store)]),
  ].map(({ message, sql }) => ({ message: printable(`${about} ${message}.`), sql }))
}

function warnOfNeon(): void {
  warnOnce(
    'UNLOGGED_ON_NEON',
    'The server is Neon, which empties UNLOGGED tables whenever its compute stops. Limits in the ephemeral ' +
      'table are then whole again. See docs/migrations.md, "Servers that stop when idle".',
  )
}

/** Narrower types, whose values all have the same meaning in the expected type. */
const NARROWER: Readonly<Record<string, RegExp>> = {
  bigint: /^(smallint|integer)$/,
  'double precision': /^(smallint|integer|real)$/,
  text: /^(character varying|text COLLATE)\b/,
  'timestamp with time zone': /^timestamp\(\d\) with time zone$/,
}

function* missingDifferences(table: RateLimitTable, found: FoundTable): Generator<TableDifference> {
  const { quoted, columns } = tableShapeOf(table)
  for (const column of columns) {
    const { name, type, notNull } = column
    const there = found.columns.find((other) => other.name === name)
    if (!there) {
      const message = `has no column ${name}, which should be ${type}`
      yield { message, sql: [`ALTER TABLE ${quoted} ADD COLUMN ${columnDefinition(column)}`] }
      continue
    }
    const alter = `ALTER TABLE ${quoted} ALTER COLUMN ${quote(name)}`
    if (there.type !== type) {
      const sql = NARROWER[type]?.test(there.type) ? [`${alter} SET DATA TYPE ${type}`] : undefined
      yield { message: `has a column ${name} of type ${there.type} that should be ${type}`, sql }
    }
    if (notNull && !there.notNull) {
      yield {
        message: `has a column ${name} that should be NOT NULL and is not`,
        sql: [`${alter} SET NOT NULL`],
      }
    }
  }
}

/** These come after the indexes, because a primary key keeps its columns NOT NULL. */
function* notNullDifferences(table: RateLimitTable, found: FoundTable): Generator<TableDifference> {
  const { quoted, columns } = tableShapeOf(table)
  for (const { name, filled } of found.columns.filter(({ notNull }) => notNull)) {
    const expected = columns.find((other) => other.name === name)
    const sql = [`ALTER TABLE ${quoted} ALTER COLUMN ${quote(name)} DROP NOT NULL`]
    if (expected && !expected.notNull) {
      yield { message: `has a column ${name} that is NOT NULL and should not be`, sql }
    } else if (!expected && !filled) {
      yield { message: `has a column ${name} that is NOT NULL and that the limiter does not fill`, sql }
    }
  }
}

function* indexDifferences(table: RateLimitTable, found: FoundTable): Generator<TableDifference> {
  const { quoted, primaryKey, index, indexName } = tableShapeOf(table)
  const isOn = (columns: readonly string[]) => (other: FoundIndex) =>
    other.whole && other.columns.join() === columns.join()
  const primary = found.indexes.find((other) => other.primary)
  if (!primary || !isOn(primaryKey)(primary)) {
    const steps = [...(primary ? [dropConstraint(primary)] : []), `ADD ${primaryKeyDefinition(table)}`]
    const message = `has no primary key on (${primaryKey.join(', ')})`
    yield { message, sql: [`ALTER TABLE ${quoted} ${steps.join(', ')}`] }
  }
  if (!found.indexes.some(isOn(index))) {
    const inTheWay = found.indexes.filter(({ name }) => name === indexName)
    const sql = [...inTheWay.map((other) => drop(table, other)), createIndex(table)]
    yield { message: `has no index on (${index.join(', ')})`, sql }
  }
  for (const other of found.indexes) {
    // The primary key already refuses two rows of one key.
    const isHarmless = primaryKey.every((column) => other.columns.includes(column))
    if (!other.unique || other.primary || isHarmless) continue
    const wasNeeded = isOn(index)(other) && found.indexes.filter(isOn(index)).length === 1
    const message = `has a unique index on (${other.columns.join(', ')}), which refuses rows that the limiter has to insert`
    yield { message, sql: [drop(table, other), ...(wasNeeded ? [createIndex(table)] : [])] }
  }
}

function drop(table: RateLimitTable, index: FoundIndex): string {
  const { schema, quoted } = tableShapeOf(table)
  if (index.constraint !== null) return `ALTER TABLE ${quoted} ${dropConstraint(index)}`
  return `DROP INDEX ${schema ? `${quote(schema)}.` : ''}${quote(index.name)}`
}

function dropConstraint({ constraint, name }: FoundIndex): string {
  return `DROP CONSTRAINT ${quote(constraint ?? name)}`
}

/** Queries of a table also read and change the rows of the tables that inherit from it. */
function* heirDifferences(table: RateLimitTable, { heirs }: FoundTable): Generator<TableDifference> {
  for (const heir of heirs) {
    const message = `is inherited by ${heir}, whose rows calls would count and change as its own`
    yield { message, sql: [`ALTER TABLE ${heir} NO INHERIT ${tableShapeOf(table).quoted}`] }
  }
}

/** Only what the schema declares. Row level security that was switched on by hand is no difference. */
function* policyDifferences(table: RateLimitTable, found: FoundTable): Generator<TableDifference> {
  const { quoted, rls, policies } = tableShapeOf(table)
  if (rls && !found.isSecured) {
    yield { message: 'should have row level security', sql: [secure(quoted)] }
  }
  for (const policy of policies) {
    if (!found.policies.includes(policy.name)) {
      yield { message: `has no policy ${policy.name}`, sql: [createPolicy(quoted, policy)] }
    }
  }
}

/** Without SQL: which roles are the application's is not known here. */
function* privilegeDifferences({ writers, restricted }: FoundTable): Generator<TableDifference> {
  if (writers.length > 0) {
    const message =
      `can be changed by ${writers.join(', ')}: if that is not the role of your application, revoke it, or ` +
      'switch on row level security, as docs/privileges.md says'
    yield { message, sql: undefined }
  }
  if (restricted.length > 0) {
    const message =
      `has row level security, and no policy lets this role ${restricted.join(', ')} all rows, so that calls ` +
      'are refused: add a policy for the role, as docs/privileges.md says'
    yield { message, sql: undefined }
  }
}

function* storageDifferences(
  table: RateLimitTable,
  persistence: keyof RateLimitTables,
  { logged = false }: StorageOptions,
  found: FoundStore,
): Generator<TableDifference> {
  // A partitioned table has no storage. Each of its partitions has its own.
  const quoted = found.partition ?? tableShapeOf(table).quoted
  const where = found.partition === null ? '' : `has the partition ${found.partition}, which `
  const isUnlogged = persistence === 'ephemeral' && !logged
  if (found.persistence !== (isUnlogged ? 'u' : 'p')) {
    const differs = isUnlogged
      ? 'is logged and should be UNLOGGED'
      : 'is UNLOGGED and should be logged, because a crash empties it'
    yield { message: where + differs, sql: [setPersistence(quoted, isUnlogged ? 'UNLOGGED' : 'LOGGED')] }
  }
  for (const [option, value] of Object.entries(STORAGE_PARAMETERS)) {
    if (!found.options.includes(`${option}=${value}`)) {
      const message = `${where}should have the storage parameter ${option} = ${value}`
      yield { message, sql: [setParameters(quoted, { [option]: value })] }
    }
  }
  const { name } = table.prefix
  if (!found.unmeasured.includes(name)) {
    const message = `${where}should have no statistics of the column ${name}, which mislead the planner`
    yield { message, sql: [setStatistics(quoted, table)] }
  }
}
