import type { RateLimitTables } from '../../schema/index.ts'
import { qualifiedName } from './tables.ts'

const WORD = String.raw`(?:"(?:[^"]|"")+"|[\w$]+)`
const TABLE = String.raw`(?:IF\s+(?:NOT\s+)?EXISTS\s+)?((?:${WORD}\s*\.\s*)?${WORD})`

/** The statements that make, drop and rename a table. */
const STATEMENTS = new RegExp(
  [
    String.raw`\bCREATE\s+(?:UNLOGGED\s+)?TABLE\s+${TABLE}`,
    String.raw`\bDROP\s+TABLE\s+${TABLE}`,
    String.raw`\bALTER\s+TABLE\s+${TABLE}\s+(?:RENAME\s+TO\s+(${WORD})|SET\s+SCHEMA\s+(${WORD}))`,
  ].join('|'),
  'gi',
)

/** The tables after this SQL, each as `schema.name`, and where the SQL has given it that name. */
export function tablesAfter(sql: string): ReadonlyMap<string, number> {
  const tables = new Map<string, number>()
  for (const { index, 1: made, 2: dropped, 3: moved, 4: name, 5: schema } of sql.matchAll(STATEMENTS)) {
    const [before = '', ofSchema = 'public'] = wordsIn(made ?? dropped ?? moved).toReversed()
    tables.delete(`${ofSchema}.${before}`)
    const [after = before] = wordsIn(name)
    const [into = ofSchema] = wordsIn(schema)
    if (dropped === undefined) tables.set(`${into}.${after}`, index)
  }
  return tables
}

/** Whether both tables are among them. */
export function hasTables(
  all: ReadonlyMap<string, number>,
  { ephemeral, durable }: RateLimitTables,
): boolean {
  return all.has(qualifiedName(ephemeral)) && all.has(qualifiedName(durable))
}

/** The tables that this SQL makes with the columns of the limiter's, each as `schema.name`. */
export function limiterTablesIn(sql: string): string[] {
  const texts = sql.split(/(?=\bCREATE TABLE )/)
  const own = texts.filter((text) => /"prev_count"[^;]*"last_refill"/.test(text))
  return own.flatMap((text) => [...tablesAfter(text).keys()]).toSorted()
}

/** Postgres reads a name without quotes as lower case. */
function wordsIn(names = ''): string[] {
  const words = names.match(new RegExp(WORD, 'g')) ?? []
  return words.map((word) =>
    word.startsWith('"') ? word.slice(1, -1).replaceAll('""', '"') : word.toLowerCase(),
  )
}
