import { readFileSync } from 'node:fs'

const { exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))

/** What the package's users import, such as `drizzle-ratelimit/schema`, and the file of the sources. */
export const ENTRIES: ReadonlyMap<string, string> = new Map(
  Object.entries(exports).flatMap(([path, targets]) => {
    const built = /dist\/((?:src|schema)\/[\w/.-]+)\.js"/.exec(JSON.stringify(targets))?.[1]
    return built ? [[`drizzle-ratelimit${path.slice(1)}`, `${built}.ts`]] : []
  }),
)
