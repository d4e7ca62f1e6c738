import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm } from '../algorithms/algorithm.ts'
import type { Rendered } from '../database/rendered.ts'
import { type Commit, checkStatement } from './check.ts'
import { cleanupStatement } from './cleanup.ts'
import type { Form } from './input.ts'
import { lockStatement, unmakeStatement } from './lock.ts'
import { lookStatement } from './look.ts'
import { resetStatement } from './reset.ts'
import { usageStatement } from './usage.ts'

const rendered = new WeakMap<RateLimitTable, Map<string, Rendered>>()

// Each statement of a table is built and rendered when it is first needed, and kept as long as the table.

export function check(table: RateLimitTable, algorithm: AnyAlgorithm, form: Form, commit: Commit): Rendered {
  return once(table, `check ${algorithm.name} ${form} ${commit}`, () =>
    checkStatement({ table, algorithm, form, commit }),
  )
}

export function look(table: RateLimitTable, algorithm: AnyAlgorithm, form: Form): Rendered {
  return once(table, `look ${algorithm.name} ${form}`, () => lookStatement({ table, algorithm, form }))
}

export function usage(table: RateLimitTable, algorithm: AnyAlgorithm): Rendered {
  return once(table, `usage ${algorithm.name}`, () => usageStatement(table, algorithm))
}

export function lock(table: RateLimitTable): Rendered {
  return once(table, 'lock', () => lockStatement(table))
}

export function unmake(table: RateLimitTable): Rendered {
  return once(table, 'unmake', () => unmakeStatement(table))
}

export function reset(table: RateLimitTable): Rendered {
  return once(table, 'reset', () => resetStatement(table))
}

export function cleanup(table: RateLimitTable): Rendered {
  return once(table, 'cleanup', () => cleanupStatement(table))
}

function once(table: RateLimitTable, name: string, make: () => Rendered): Rendered {
  const ofTable = rendered.get(table) ?? new Map<string, Rendered>()
  rendered.set(table, ofTable)
  const known = ofTable.get(name) ?? make()
  ofTable.set(name, known)
  return known
}
