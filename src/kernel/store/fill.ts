import { runOnce } from '../database/run.ts'
import { kept } from '../database/statement.ts'
import { freshState } from '../limits/limiter.ts'
import { fillStatement, removeStatement } from '../sql/remove.ts'
import type { Request } from './call.ts'
import type { Target } from './store.ts'

/** Writes the whole limit into the row of a key. */
export async function fill(target: Target, request: Request): Promise<void> {
  const { connection, table, namespace } = target
  const { steps } = table.store
  if (steps) return steps.fill(target, request)
  const { key, limiter } = request
  const { algorithm, params } = limiter
  const clock = namespace.clock?.() ?? null
  const name = `fill ${algorithm.name} ${clock !== null}`
  const statement = kept(table.statements, name, () => fillStatement(table.table, algorithm, clock !== null))
  // Nothing of the limit is used.
  const whole = algorithm.numbers.consume(freshState(limiter, 0, params), 0, -params.limit, params, 0)
  const values = { prefix: namespace.prefix, key, clock, ...whole }
  await runOnce(connection, statement, values)
}

export async function removeRow({ connection, table, namespace }: Target, key: string): Promise<void> {
  const statement = kept(table.statements, 'remove', () => removeStatement(table.table))
  await runOnce(connection, statement, { prefix: namespace.prefix, key })
}
