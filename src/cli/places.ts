import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

/** A file that can declare the tables. */
export interface Place {
  readonly file: string
  /** The text that the file has now. Undefined if there is no such file. */
  readonly before: string | undefined
  /** A text in the style of the project. */
  readonly style: string
}

const SOURCE = /\.[cm]?[jt]s$/
const PATTERN = /[*?[{]/

/**
 * The places for the tables in what a configuration calls the schema, the best one first: a file, or a new file
 * that a folder or a pattern brings in. Only drizzle-kit can say whether it does.
 */
export function placesIn(schema: readonly string[]): Place[] {
  return schema.flatMap((entry) => {
    if (!existsSync(entry)) return PATTERN.test(entry) ? [newFile(fileOf(entry))] : []
    if (statSync(entry).isDirectory()) {
      const [other = '.ts'] = sourcesIn(entry)
      return [newFile(join(entry, `rate-limit${SOURCE.exec(other)}`))]
    }
    const before = readFileSync(entry, 'utf8')
    return [{ file: entry, before, style: before }]
  })
}

/** A name that the pattern matches: `src/*.schema.ts` gives `src/rate-limit.schema.ts`. */
function fileOf(pattern: string): string {
  const path = pattern
    .replaceAll('**/', '')
    .replaceAll(/\{([^,}]*)[^}]*\}/g, '$1')
    .replaceAll(/\*+|\?|\[[^\]]*\]/g, 'rate-limit')
  const file = SOURCE.test(path) ? path : `${path}.ts`
  return existsSync(file) ? join(dirname(file), 'rate-limit', basename(file)) : file
}

function sourcesIn(folder: string): string[] {
  return existsSync(folder) ? readdirSync(folder).filter((name) => SOURCE.test(name)) : []
}

function newFile(file: string): Place {
  const folder = dirname(file)
  const [other] = sourcesIn(folder)
  return { file, before: undefined, style: other ? readFileSync(join(folder, other), 'utf8') : '' }
}
