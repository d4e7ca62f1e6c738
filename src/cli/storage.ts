import { writeFile } from 'node:fs/promises'
import { relative } from 'node:path'
import { parseArgs } from 'node:util'
import type { RateLimitTables } from '../../schema/index.ts'
import { quotedName, textLiteral } from '../kernel/database/table-name.ts'
import { setPersistence, tableShapeOf } from '../tables/ddl.ts'
import { type StorageOptions, storageSql } from '../tables/table-sql.ts'
import { findKit, type Kit } from './kit.ts'
import { type Migrations, nextSecond, readMigrations } from './migrations.ts'
import { type Output, optionOf } from './output.ts'
import { LOGGED_OPTION, qualifiedName, TABLE_OPTIONS, tablesFrom } from './tables.ts'

/** The options for drizzle-kit, for parseArgs. */
export const KIT_OPTIONS = {
  config: { type: 'string' },
  name: { type: 'string', default: 'rate_limit_storage' },
} as const

const STORAGE_OPTIONS = {
  ...TABLE_OPTIONS,
  ...LOGGED_OPTION,
  ...KIT_OPTIONS,
  citus: { type: 'boolean', default: false },
} as const

/** Lets the project's drizzle-kit create a custom migration, and writes the statements into it. */
export async function storage(args: string[], output: Output): Promise<number> {
  const { values } = parseArgs({ args, options: STORAGE_OPTIONS })
  const tables = tablesFrom(values)
  const kit = await findKit(values.config)
  const { folder } = await kit.settings()
  const migrations = await readMigrations(folder)
  requireTables(migrations, tables, folder)
  if (hasStorage(migrations, tables, values)) {
    output.log(`The migrations in ${relative('', folder)} set the storage already. There is nothing to do.`)
    return 0
  }
  const file = await writeStorage(kit, folder, tables, values)
  output.log(`Wrote ${file}. Now run \`${kit.command('migrate')}\`.`)
  return 0
}

/** How the tables are stored, and the name of the migration. */
export interface StorageValues extends StorageOptions {
  readonly name: string
  readonly citus?: boolean
}

/** Lets drizzle-kit create a custom migration, and fills it in. Returns the path of its SQL. */
export async function writeStorage(
  kit: Kit,
  folder: string,
  tables: RateLimitTables,
  values: StorageValues,
): Promise<string> {
  await nextSecond(folder)
  const file = await kit.generateCustom(values.name)
  const distribution = values.citus ? citusMigration(tables) : ''
  await writeFile(file, storageMigration(tables, values) + distribution)
  return file
}

/** Whether the migrations have all statements, and none of them reverts a statement later. */
export function hasStorage(
  { sql: all, tables: made }: Migrations,
  tables: RateLimitTables,
  { logged = false, citus = false }: Omit<StorageValues, 'name'>,
): boolean {
  // A table that was dropped and made again has lost its storage.
  const sql = all.slice(
    Math.max(...[tables.ephemeral, tables.durable].map((table) => made.get(qualifiedName(table)) ?? 0)),
  )
  const at = (persistence: 'LOGGED' | 'UNLOGGED') =>
    sql.lastIndexOf(setPersistence(tableShapeOf(tables.ephemeral).quoted, persistence))
  const isLast = logged ? at('LOGGED') > at('UNLOGGED') : at('UNLOGGED') > at('LOGGED')
  const needed = [...storageSql(tables, { logged }), ...(citus ? citusSql(tables) : [])]
  return isLast && needed.every((statement) => sql.includes(statement))
}

/** Checks that the migrations create the tables, because a storage migration before that would fail. */
function requireTables(
  migrations: Migrations,
  { ephemeral, durable }: RateLimitTables,
  folder: string,
): void {
  for (const [option, table] of Object.entries({ ephemeral, durable })) {
    if (migrations.tables.has(qualifiedName(table))) continue
    const { name } = tableShapeOf(table)
    const elsewhere = [...migrations.tables.keys()].find((other) => other.endsWith(`.${name}`))
    throw new Error(
      `The migrations in ${relative('', folder)} do not make ${qualifiedName(table)}. ` +
        (elsewhere
          ? `They make ${elsewhere}: add ${optionOf('schema', elsewhere.slice(0, -name.length - 1))}.`
          : `Export it from your Drizzle schema and run \`npx drizzle-kit generate\` first. If it has another name, add --${option}.`),
    )
  }
}

const UNLOGGED = `-- The rows of an UNLOGGED table never reach the WAL, so checks are faster. A crash empties the table.
`

const LOGGED = `-- The ephemeral table is logged, so that no limit is forgotten when the server stops.
`

const why = (
  logged: boolean,
) => `-- Drizzle's schema cannot say these things. drizzle-kit leaves them as they are.
${logged ? LOGGED : UNLOGGED}-- Each page has room for the new versions of its rows, so updates stay within the page (HOT).
-- Autovacuum runs more often, because the rows change all day.
-- Without statistics about prefixes, the planner finds a key by the primary key. With them, it takes a prefix
-- for rare if the prefix was rare when they were made, and then reads all keys of the prefix.
`

/** The text of the migration. */
export function storageMigration(tables: RateLimitTables, { logged = false }: StorageOptions = {}): string {
  return `${why(logged)}${storageSql(tables, { logged }).join(';\n--> statement-breakpoint\n')};\n`
}

const DISTRIBUTED = `--> statement-breakpoint
-- Citus distributes both tables by key. The same key of both is on one server. This comes after the settings,
-- because Citus refuses SET STATISTICS on a distributed table.
`

/** The rest of the migration for Citus. */
export function citusMigration(tables: RateLimitTables): string {
  return `${DISTRIBUTED}${citusSql(tables).join(';\n--> statement-breakpoint\n')};\n`
}

function citusSql({ ephemeral, durable }: RateLimitTables): readonly string[] {
  const [first, second] = [ephemeral, durable].map((table) => textLiteral(quotedName(table)))
  return [
    `SELECT create_distributed_table(${first}, ${textLiteral(ephemeral.key.name)})`,
    `SELECT create_distributed_table(${second}, ${textLiteral(durable.key.name)}, colocate_with => ${first})`,
  ]
}
