import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { handleIn } from '../check/handles.ts'

/**
 * The default export of the module that `--limits` names: for each prefix a limiter, an object with it and
 * `durable`, or a `Ratelimit` or `Quota`.
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

/** Whether the rows of a limit are in the durable table: a `Ratelimit` or `Quota` knows it, others say it. */
export function isDurable(limit: object): boolean {
  const handle = handleIn(limit)
  // Outside of transactions, only the durable table is written with a commit of its own.
  if (handle) return handle.checker.rows.commit !== 'as the session'
  return 'durable' in limit && limit.durable === true
}
