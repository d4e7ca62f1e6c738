import { resolve } from 'node:path'
import { handleIn } from '../kernel/engine/handles.ts'
import type { OneLimitRows, PlanRows } from '../shared/limiter-rows.ts'
import { loadModule } from './load-module.ts'

/** A limit of the module that `--limits` names. */
export interface ModuleLimit {
  readonly prefix: string
  /** How `usage` reads the keys. It checks this. Undefined if only denials can be read. */
  readonly reading: Pick<OneLimitRows, 'limiter'> | Pick<PlanRows, 'limiterOf'> | undefined
  /** Which table has the rows. */
  readonly durable: boolean
}

/**
 * The limits of the module that `--limits` names. Its default export has a `Ratelimit`, `Quota` or `Credits` by
 * any name, also as `{ ratelimit, limiterOf }` like the page for operators, or for each prefix an object with
 * `limiter` or `limiterOf`, and `durable`.
 */
export async function limitsIn(module: string): Promise<ModuleLimit[]> {
  const loaded = await loadModule(resolve(module))
  // A CommonJS module has its exports in `default` too.
  const given: unknown = loaded.default?.default ?? loaded.default
  if (typeof given !== 'object' || given === null) {
    throw new Error(
      'The module of --limits has no default export: add `export default { api }`, with your limiters by any names.',
    )
  }
  return Object.entries(given).map(([name, limit]) => limitOf(name, limit))
}

function limitOf(name: string, limit: Partial<OneLimitRows> | Partial<PlanRows>): ModuleLimit {
  const own = Object(limit)
  const { checker, funded } = handleIn(own.ratelimit ?? limit) ?? {}
  const limiter = checker ? checker.terms.limiter : own.limiter
  // Keys of dated credits have many rows, and those of an unlimited plan have none.
  const isUnread = funded !== undefined || limiter?.stored === false
  // Outside of transactions, only the durable table is written with a commit of its own.
  const durable = checker ? checker.rows.commit !== 'as the session' : own.durable
  // With a default, the other table would be read, and nothing found.
  if (typeof durable === 'boolean') {
    return {
      prefix: checker?.rows.namespace.prefix ?? name,
      reading: isUnread ? undefined : own.limiterOf ? { limiterOf: own.limiterOf } : { limiter },
      durable,
    }
  }
  throw new Error(
    `The limit ${JSON.stringify(name)} of --limits must be your Ratelimit, Quota or Credits, or { limiter, durable }: durable says which table has its rows.`,
  )
}
