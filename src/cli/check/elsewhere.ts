import { sql } from 'drizzle-orm'
import type { RateLimitTables } from '../../../schema/index.ts'
import type { Database } from '../../kernel/database/database.ts'
import { execute } from '../../kernel/database/run.ts'
import { quotedName } from '../../kernel/database/table-name.ts'
import { printable } from '../../shared/readable.ts'
import { tableShapeOf } from '../../tables/ddl.ts'
import { optionOf } from '../output.ts'

export type TableKind = 'ephemeral' | 'durable'
const TABLE_KINDS: readonly TableKind[] = ['ephemeral', 'durable']

/** A table that looks like one of the limiter's: it has the columns or the name. */
interface Similar {
  readonly schema: string
  readonly name: string
  /** Undefined if neither its name nor its storage tells. */
  readonly kind: TableKind | undefined
  /** Whether it is one of the expected tables. */
  readonly isExpected: boolean
}

/** Whether a table is missing, and a sentence for each place that has others like it, with their options. */
export async function elsewhere(
  db: Database,
  tables: RateLimitTables,
): Promise<{ readonly isMissing: boolean; readonly sentences: readonly string[] }> {
  const all = await similarTables(db, tables)
  const others = all.filter(({ isExpected }) => !isExpected)
  if (all.length - others.length === TABLE_KINDS.length) return { isMissing: false, sentences: [] }
  const schemas = [...new Set(others.map(({ schema }) => schema))]
  const inSchema = (schema: string) => others.filter((each) => each.schema === schema)
  return { isMissing: true, sentences: schemas.map((each) => sentenceOf(each, inSchema(each), tables)) }
}

function sentenceOf(schema: string, found: readonly Similar[], tables: RateLimitTables): string {
  const { schema: expected = 'public' } = tableShapeOf(tables.ephemeral)
  const options = schema === expected ? [] : [optionOf('schema', schema)]
  for (const kind of TABLE_KINDS) {
    const { name: usual } = tableShapeOf(tables[kind])
    if (found.some(({ name }) => name === usual)) continue
    const [other] = found.filter((each) => each.kind === kind)
    if (other) options.push(optionOf(kind, other.name))
  }
  if (found.some(({ kind }) => kind === undefined)) options.push('--ephemeral and --durable with their names')
  const names = found.map(({ name }) => printable(name)).join(' and ')
  return `The schema ${printable(schema)} has tables like these, ${names}: add ${options.join(' ')}.`
}

async function similarTables(db: Database, tables: RateLimitTables): Promise<Similar[]> {
  const expected = [tables.ephemeral, tables.durable]
  const columns = tableShapeOf(tables.ephemeral).columns.map(({ name }) => name)
  const names = expected.map((table) => tableShapeOf(table).name)
  const found = expected.map((table) => sql`to_regclass(${quotedName(table)}::text)::oid`)
  const list = (texts: readonly string[]) =>
    sql.join(
      texts.map((text) => sql`${text}::text`),
      sql`, `,
    )
  const rows = await execute(
    db,
    sql`select n.nspname as schema, c.relname as name, c.relpersistence = 'u' as unlogged,
        c.oid in (${sql.join(found, sql`, `)}) as expected
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p') and not c.relispartition and (c.relname in (${list(names)}) or ${columns.length} = (
        select count(*) from pg_attribute a
        where a.attrelid = c.oid and not a.attisdropped and a.attname in (${list(columns)})))
      order by 1, 2`,
  )
  return rows.map(({ schema, name, unlogged, expected: isExpected }) => ({
    schema: String(schema),
    name: String(name),
    isExpected: isExpected === true,
    kind: unlogged === true ? 'ephemeral' : tableKindOf(String(name), tables),
  }))
}

/** What a name says about a table. */
export function tableKindOf(name: string, tables: RateLimitTables): TableKind | undefined {
  return TABLE_KINDS.find((kind) => name === tableShapeOf(tables[kind]).name || name.includes(kind))
}
