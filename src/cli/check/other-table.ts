import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { execute } from '../../kernel/database/run.ts'
import { counted } from '../../shared/readable.ts'
import { tableShapeOf } from '../../tables/ddl.ts'
import { limitsIn } from '../limits.ts'

/**
 * Says which limits of a module have live rows in the table that they do not use, such as those of a limit that
 * has become durable.
 */
export async function inOtherTable(
  db: Database,
  tables: RateLimitTables,
  module: string,
): Promise<readonly string[]> {
  const said: string[] = []
  for (const { prefix, durable } of await limitsIn(module)) {
    const [own, other] = durable ? [tables.durable, tables.ephemeral] : [tables.ephemeral, tables.durable]
    const live = sql`${other.prefix} = ${prefix} and ${other.expiresAt} > now()`
    const [row] = await execute(db, sql`select count(*)::int as live from ${other} where ${live}`)
    const count = Number(row?.['live'])
    if (count > 0) said.push(sentence(prefix, count, tableShapeOf(own).quoted, tableShapeOf(other).quoted))
  }
  return said
}

function sentence(prefix: string, count: number, own: string, other: string): string {
  return `${JSON.stringify(prefix)} has ${counted(count, 'live row')} in ${other}, and its limiter reads ${own}: change \`durable\`, or move the rows.`
}
