import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

/**
 * The default export of the module that `--limits` names: a limiter for each prefix, or an object with it and
 * `durable`.
 */
export async function limitsIn(module: string): Promise<[prefix: string, limit: object][]> {
  const loaded = await import(pathToFileURL(resolve(module)).href)
  // A CommonJS module has its exports in `default` too.
  const given: unknown = loaded.default?.default ?? loaded.default
  if (typeof given !== 'object' || given === null) {
    throw new Error('The module of --limits has no default export with a limiter for each prefix.')
  }
  return Object.entries(given)
}
