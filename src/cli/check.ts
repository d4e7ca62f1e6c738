import { parseArgs } from 'node:util'
import { sql } from 'drizzle-orm'
import type { Database } from '../database/database.ts'
import { execute } from '../database/run.ts'
import { checkTables } from '../tables/check-tables.ts'
import { shapeOf } from '../tables/ddl.ts'
import { printable } from '../tables/table-name.ts'
import { connect } from './connect.ts'
import { type Output, optionOf } from './output.ts'
import { LOGGED_OPTION, TABLE_OPTIONS, tablesOf } from './tables.ts'

/** Prints the differences between the tables in a database and the expected ones. */
export async function check(args: string[], output: Output): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: { ...TABLE_OPTIONS, ...LOGGED_OPTION },
    allowPositionals: true,
  })
  const [url = process.env['DATABASE_URL'], ...more] = positionals
  if (!url) throw new Error('Which database? Run `drizzle-ratelimit check <url>`, or set DATABASE_URL.')
  if (more.length > 0) throw new Error('`drizzle-ratelimit check` takes one URL.')
  const tables = tablesOf(values)

  const { db, end } = await connect(url)
  try {
    const differences = await checkTables(db, tables, { logged: values.logged })
    for (const difference of differences) {
      output.log(difference.message)
      for (const statement of difference.sql ?? []) output.log(`${statement};`.replaceAll(/^/gm, '    '))
    }
    if (differences.length === 0) {
      const names = [tables.ephemeral, tables.durable].map((table) => shapeOf(table).quoted)
      output.log(`${names.join(' and ')} are as the limiter expects them.`)
      return 0
    }
    const others = await schemasWith(db, shapeOf(tables.ephemeral).name, values.schema)
    for (const schema of others) {
      output.log(`\nThe schema ${printable(schema)} has such tables: add ${optionOf('schema', schema)}.`)
    }
    output.log(`\n${differences.length === 1 ? '1 difference' : `${differences.length} differences`}.`)
    return 1
  } finally {
    await end()
  }
}

/** The Postgres schemas with a table of that name. None if the checked schema is one of them. */
async function schemasWith(db: Database, name: string, checked: string): Promise<string[]> {
  const rows = await execute(
    db,
    sql`select n.nspname as schema from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relname = ${name} and c.relkind in ('r', 'p') order by 1`,
  )
  const schemas = rows.map(({ schema }) => String(schema))
  return schemas.includes(checked) ? [] : schemas
}
