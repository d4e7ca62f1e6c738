import { relative } from 'node:path'
import { parseArgs } from 'node:util'
import type { RateLimitTables } from '../../schema/index.ts'
import { type Addition, declareTables, waysToDeclare } from './declare-tables.ts'
import { fittingNames } from './fitting-names.ts'
import { findKit, type Kit } from './kit.ts'
import { readMigrations } from './migrations.ts'
import type { Output } from './output.ts'
import { recommendedDb } from './recommended-db.ts'
import { hasStorage, KIT_OPTIONS, type StorageValues, writeStorage } from './storage.ts'
import { isShipped, LOGGED_OPTION, TABLE_OPTIONS, tablesFrom } from './tables.ts'
import { hasTables } from './tables-after.ts'

const INIT_OPTIONS = {
  ...TABLE_OPTIONS,
  ...LOGGED_OPTION,
  ...KIT_OPTIONS,
  // The configuration of drizzle-kit decides.
  schema: { type: 'string' },
  'dry-run': { type: 'boolean', default: false },
} as const

/** Something to do. */
interface InitStep {
  readonly plan: string
  /** Does it, and says what was done. */
  run(): Promise<string>
}

/** Declares the tables in the project's schema, and lets its drizzle-kit write both migrations. */
export async function init(args: string[], output: Output): Promise<number> {
  const { values } = parseArgs({ args, options: INIT_OPTIONS })
  const kit = await findKit(values.config)
  const { dialect, folder, schema, ...filters } = await kit.settings()
  if (dialect !== 'postgresql') {
    throw new Error(`The limiter needs PostgreSQL, and the dialect of the configuration is ${dialect}.`)
  }
  const names = fittingNames(values, filters)
  const tables = tablesFrom(names)
  const ways = await waysToDeclare(kit, schema, names, tables)
  const migrations = await readMigrations(folder)
  const isMade = hasTables(migrations.tables, tables)
  const steps = [
    ...(ways ? [declaring(kit, ways, tables)] : []),
    ...(isMade ? [] : [generating(kit, folder, tables)]),
    ...(isMade && hasStorage(migrations, tables, values) ? [] : [storing(kit, folder, tables, values)]),
  ]
  if (steps.length === 0) {
    output.log(
      'The schema and the migrations have the tables and their storage already. There is nothing to do.',
    )
    return 0
  }
  for (const step of steps) output.log(values['dry-run'] ? step.plan : await step.run())
  if (values['dry-run']) return 0
  output.log(`\nNow run \`${kit.command('migrate')}\`.`)
  if (!isShipped(tables)) {
    const own = ways ? 'rateLimits' : '{ ephemeral, durable }'
    output.log(`Give the limiters your tables: \`tables: ${own}\`, from your schema.`)
  }
  output.log(`\nA db.ts that survives broken connections:\n\n${indented(await recommendedDb())}`)
  return 0
}

function declaring(kit: Kit, ways: readonly Addition[], tables: RateLimitTables): InitStep {
  const [first] = ways
  const said = ({ file, before, added }: Addition) =>
    `${before === undefined ? 'new file' : 'end of'} ${relative('', file)}:\n\n${indented(added)}`
  return {
    plan: first ? `Would write to the ${said(first)}` : 'Would find no file of the schema to change.',
    run: async () => `Wrote to the ${said(await declareTables(kit, ways, tables))}`,
  }
}

function generating(kit: Kit, folder: string, tables: RateLimitTables): InitStep {
  const command = kit.command('generate')
  return {
    plan: `Would run \`${command}\`.`,
    run: async () => {
      const before = await readMigrations(folder)
      const printed = await kit.generate()
      if (hasTables((await readMigrations(folder)).tables, tables)) {
        const isFirst = before.sql === ''
        return `Ran \`${command}\`, which wrote a migration.${isFirst ? FIRST_MIGRATION : ''}`
      }
      throw new Error(
        `drizzle-kit wrote no migration with the tables. Run \`${command}\`, answer its questions, and then ` +
          `\`npx drizzle-ratelimit init\` again. It said:\n${printed}`,
      )
    },
  }
}

const FIRST_MIGRATION = `
It is the first one, and makes all tables. If \`drizzle-kit push\` has made them before: docs/migrations.md, "If you push".`

function storing(kit: Kit, folder: string, tables: RateLimitTables, values: StorageValues): InitStep {
  return {
    plan: `Would write the migration ${values.name}, which sets the storage of the tables.`,
    run: async () => {
      const file = await writeStorage(kit, folder, tables, values)
      return `Wrote ${file}, which sets the storage of the tables.`
    },
  }
}

function indented(text: string): string {
  return text.replaceAll(/^(?=.)/gm, '    ')
}
