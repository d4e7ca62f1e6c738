import { parseArgs } from 'node:util'
import { checkTables } from '../kernel/tables/check-tables.ts'
import { tableShapeOf } from '../kernel/tables/ddl.ts'
import { connect } from './connect.ts'
import { elsewhere } from './elsewhere.ts'
import { inOtherTable } from './other-table.ts'
import type { Output } from './output.ts'
import { LOGGED_OPTION, TABLE_OPTIONS, tablesFrom } from './tables.ts'

/** Prints the differences between the tables in a database and the expected ones. */
export async function check(args: string[], output: Output): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: { ...TABLE_OPTIONS, ...LOGGED_OPTION, limits: { type: 'string' } },
    allowPositionals: true,
  })
  const [url = process.env['DATABASE_URL'], ...more] = positionals
  if (!url) throw new Error('Which database? Run `drizzle-ratelimit check <url>`, or set DATABASE_URL.')
  if (more.length > 0) throw new Error('`drizzle-ratelimit check` takes one URL.')
  const tables = tablesFrom(values)

  const { db, end } = await connect(url)
  try {
    const differences = await checkTables(db, tables, { logged: values.logged })
    for (const difference of differences) {
      output.log(difference.message)
      for (const statement of difference.sql ?? []) output.log(`${statement};`.replaceAll(/^/gm, '    '))
    }
    if (differences.length === 0) {
      const said = values.limits === undefined ? [] : await inOtherTable(db, tables, values.limits)
      for (const line of said) output.log(line)
      if (said.length > 0) return 1
      const names = [tables.ephemeral, tables.durable].map((table) => tableShapeOf(table).quoted)
      output.log(`${names.join(' and ')} are as the limiter expects them.`)
      return 0
    }
    for (const sentence of await elsewhere(db, tables)) output.log(`\n${sentence}`)
    output.log(`\n${differences.length === 1 ? '1 difference' : `${differences.length} differences`}.`)
    return 1
  } finally {
    await end()
  }
}
