import { parseArgs } from 'node:util'
import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { counted } from '../../shared/readable.ts'
import { checkTables, type TableDifference } from '../../tables/check-tables.ts'
import { tableShapeOf } from '../../tables/ddl.ts'
import { connect, urlIn } from '../connect.ts'
import { jsonOf, type Output } from '../output.ts'
import { LOGGED_OPTION, TABLE_OPTIONS, tablesFrom } from '../tables.ts'
import { declaredNames } from './declared-names.ts'
import { elsewhere } from './elsewhere.ts'
import { inOtherTable } from './other-table.ts'
import { remarksOn } from './remarks.ts'

const CHECK_OPTIONS = {
  ...TABLE_OPTIONS,
  ...LOGGED_OPTION,
  // The project's Drizzle schema may say it.
  schema: { type: 'string' },
  limits: { type: 'string' },
  fix: { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
} as const

interface CheckReport {
  readonly tables: readonly string[]
  readonly differences: readonly TableDifference[]
  /** What is no difference, but means something for the limits. */
  readonly notes: readonly string[]
}

/** Prints the differences between the tables in a database and the expected ones. */
export async function check(args: string[], output: Output): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: CHECK_OPTIONS, allowPositionals: true })
  const url = urlIn(positionals, 'check')
  const { schema, ephemeral, durable, logged, limits } = values
  const isNamed = [schema, ephemeral, durable].some((name) => name !== undefined)
  const usual = tablesFrom({ ...values, schema: schema ?? 'public' })

  const { db, end } = connect(url)
  try {
    const isMissing = !isNamed && (await elsewhere(db, usual)).isMissing
    const declared = isMissing ? await declaredNames() : undefined
    const report = await compare(db, declared ? tablesFrom(declared) : usual, { logged, limits })
    output.log(
      values.json ? jsonOf(forScripts(report)) : values.fix ? migrationOf(report) : reportText(report),
    )
    return report.differences.length === 0 ? 0 : 1
  } finally {
    await end()
  }
}

async function compare(
  db: Database,
  tables: RateLimitTables,
  { logged, limits }: { logged: boolean; limits: string | undefined },
): Promise<CheckReport> {
  const { sentences } = await elsewhere(db, tables)
  const { notes, lacking } = await remarksOn(db, tables)
  const found = [...(await checkTables(db, tables, { logged })), ...lacking]
  // Rows can be read only in tables that are there.
  const misplaced = limits === undefined || found.length > 0 ? [] : await inOtherTable(db, tables, limits)
  return {
    tables: [tables.ephemeral, tables.durable].map((table) => tableShapeOf(table).about),
    differences: [...found, ...misplaced.map((message) => ({ message, sql: undefined }))],
    notes: [...sentences, ...notes],
  }
}

function reportText({ tables, differences, notes }: CheckReport): string {
  const messages = [...notes, ...(notes.length > 0 && differences.length > 0 ? [''] : [])]
  if (differences.length === 0) {
    return [...messages, `${tables.join(' and ')} are as the limiter expects them.`].join('\n')
  }
  const count = counted(differences.length, 'difference')
  const fix = differences.some(({ sql }) => sql)
    ? ' `--fix` prints the migration that removes what it can.'
    : ''
  return [...messages, ...differences.map(({ message }) => message), '', `${count}.${fix}`].join('\n')
}

/** In JSON, nothing is left out. */
function forScripts({ differences, ...others }: CheckReport): object {
  return { ...others, differences: differences.map(({ message, sql = null }) => ({ message, sql })) }
}

/** One migration, as `drizzle-kit generate --custom` takes it. What it cannot do is a comment. */
function migrationOf({ differences, notes }: CheckReport): string {
  const unknown = differences.filter(({ sql }) => sql === undefined)
  const comments = [...notes, ...unknown.map(({ message }) => message)].map((text) => `-- ${text}\n`)
  const parts = differences.flatMap(({ message, sql = [] }) =>
    sql.map((statement, place) => `${place === 0 ? `-- ${message}\n` : ''}${statement};`),
  )
  const nothing = parts.length === 0 ? ['-- There is nothing to change.'] : parts
  return comments.join('') + nothing.join('\n--> statement-breakpoint\n')
}
