import { resolve } from 'node:path'
import { handleIn } from '../kernel/engine/handles.ts'
import type { OneLimitRows, PlanRows } from '../reports/usage.ts'
import { loadModule } from './load-module.ts'

/** A limit of the module that `--limits` names. */
export interface ModuleLimit {
  readonly prefix: string
  /** How `usage` reads the keys. It checks this. Undefined for dated credits, whose keys have many rows. */
  readonly reading: Pick<OneLimitRows, 'limiter'> | Pick<PlanRows, 'limiterOf'> | undefined
  /** Which table has the rows. */
  readonly durable: boolean
}

/**
 * The limits of the module that `--limits` names. Its default export has a `Ratelimit`, `Quota` or `Credits` by
 * any name, or for each prefix an object with `limiter` or `limiterOf`, and `durable`.
 */
export async function limitsIn(module: string): Promise<ModuleLimit[]> {
  const loaded = await loadModule(resolve(module))
  // A CommonJS module has its exports in `default` too.
  const given: unknown = loaded.default?.default ?? loaded.default
  if (typeof given !== 'object' || given === null) {
    throw new Error('The module of --limits has no default export with a limit for each prefix.')
  }
  return Object.entries(given).map(([name, limit]) => limitOf(name, limit))
}

function limitOf(name: string, limit: Partial<OneLimitRows> | Partial<PlanRows>): ModuleLimit {
  const { limiter, limiterOf, durable } = Object(limit)
  const reading = limiterOf ? { limiterOf } : { limiter }
  const handle = handleIn(limit)
  if (handle) {
    const { checker, funded } = handle
    return {
      prefix: checker.rows.namespace.prefix,
      reading: funded ? undefined : { limiter: checker.terms.limiter },
      // Outside of transactions, only the durable table is written with a commit of its own.
      durable: checker.rows.commit !== 'as the session',
    }
  }
  // With a default, the other table would be read, and nothing found.
  if (typeof durable === 'boolean') return { prefix: name, reading, durable }
  throw new Error(
    `The limit ${JSON.stringify(name)} of --limits must be your Ratelimit, Quota or Credits, or { limiter, durable }: durable says which table has its rows.`,
  )
}
