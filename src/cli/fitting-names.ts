import { SHIPPED } from '../kernel/database/table-name.ts'
import { tableShapeOf } from '../tables/ddl.ts'
import type { KitSettings } from './kit.ts'
import type { TableNames, TableValues } from './tables.ts'

/**
 * The names of the tables: those that were given, and otherwise names that the filters of drizzle-kit let pass.
 * `push` and `pull` do not see other tables.
 */
export function fittingNames(
  { schema, ephemeral, durable }: Partial<TableValues>,
  { schemaFilter, tablesFilter }: Pick<KitSettings, 'schemaFilter' | 'tablesFilter'>,
): TableNames {
  return {
    schema:
      schema ?? fitting('public', schemaFilter.filter(isName), schemaFilter, 'schemaFilter', '--schema'),
    ephemeral: ephemeral ?? fittingTable('ephemeral', tablesFilter),
    durable: durable ?? fittingTable('durable', tablesFilter),
  }
}

function fittingTable(table: 'ephemeral' | 'durable', filter: readonly string[]): string {
  const usual = tableShapeOf(SHIPPED[table]).name
  const names = filter.filter((each) => each.includes('*')).map((each) => each.replace('*', usual))
  return fitting(usual, names.filter(isName), filter, 'tablesFilter', `--${table}`)
}

function isName(text: string): boolean {
  return /^[\w-]+$/.test(text)
}

/** The usual name if it passes, and otherwise the first of the others that does. */
function fitting(
  usual: string,
  others: readonly string[],
  filter: readonly string[],
  setting: string,
  option: string,
): string {
  const name = [usual, ...others].find((each) => passes(each, filter))
  if (name !== undefined) return name
  throw new Error(`${setting} in drizzle-kit's configuration lets no name like ${usual} pass: add ${option}.`)
}

function passes(name: string, filter: readonly string[]): boolean {
  const [refused, allowed] = [true, false].map((not) => filter.filter((each) => each.startsWith('!') === not))
  if (refused?.some((pattern) => matches(name, pattern.slice(1)))) return false
  return !allowed?.length || allowed.some((pattern) => matches(name, pattern))
}

/** Knows the star and the question mark. A name with other signs of a pattern does not match. */
function matches(name: string, pattern: string): boolean {
  const escaped = pattern
    .replaceAll(/[^\w*?]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.')
  return new RegExp(`^${escaped}$`).test(name)
}
