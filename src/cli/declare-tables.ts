import { mkdir, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { RateLimitTables } from '../../schema/index.ts'
import { declarationOf } from './declaration.ts'
import type { Kit } from './kit.ts'
import { type Place, placesIn } from './places.ts'
import { isShipped, type TableNames } from './tables.ts'
import { hasTables, limiterTablesIn, tablesAfter } from './tables-after.ts'

/** A way to declare the tables: text for the end of a file. */
export interface Addition extends Place {
  readonly added: string
}

/** The ways to declare the tables in a project's schema, the best one first. Undefined if it has them. */
export async function waysToDeclare(
  kit: Kit,
  schema: readonly string[],
  names: TableNames,
  tables: RateLimitTables,
): Promise<Addition[] | undefined> {
  const sql = await kit.schemaSql()
  if (hasTables(tablesAfter(sql), tables)) return undefined
  refuseOthers(sql)
  const isKnown = [...tablesAfter(sql).keys()].some((name) => name.startsWith(`${names.schema}.`))
  const withSchema = names.schema !== 'public' && !isKnown
  return placesIn(schema).map((place) => ({
    ...place,
    added: declarationOf({ ...names, isShipped: isShipped(tables), withSchema }, place.style),
  }))
}

/** Refuses a schema with tables of the limiter whose names this command was not told. */
function refuseOthers(sql: string): void {
  const names = limiterTablesIn(sql)
  if (names.length === 0) return
  throw new Error(
    `The schema has tables of the limiter with other names: ${names.join(', ')}. ` +
      'Name them by --schema, --ephemeral and --durable.',
  )
}

/** Takes the first way that lets drizzle-kit see the tables, and undoes the others. */
export async function declareTables(
  kit: Kit,
  ways: readonly Addition[],
  tables: RateLimitTables,
): Promise<Addition> {
  let cause: unknown
  for (const way of ways) {
    const undo = await add(way)
    const sql = await kit.schemaSql().catch((error: unknown) => {
      cause = error
      return ''
    })
    if (hasTables(tablesAfter(sql), tables)) return way
    await undo()
  }
  const [{ added } = { added: '' }] = ways
  throw new Error(
    `No file of the schema could be changed so that drizzle-kit sees the tables. Add them yourself:\n\n${added}`,
    { cause },
  )
}

/** Adds the text to its file. Returns what brings the files back as they were. */
async function add({ file, before, style, added }: Addition): Promise<() => Promise<void>> {
  const made = await mkdir(dirname(file), { recursive: true })
  const gap = before === undefined || before === '' ? '' : before.endsWith('\n') ? '\n' : '\n\n'
  const text = `${gap}${added}`
  await writeFile(file, `${before ?? ''}${style.includes('\r\n') ? text.replaceAll('\n', '\r\n') : text}`)
  if (before !== undefined) return () => writeFile(file, before)
  return () => rm(made ?? file, { recursive: true })
}
