import { wholeState } from '../algorithms/limiter.ts'
import type { Connection } from '../database/connection.ts'
import { runOnce } from '../database/run.ts'
import { inTransaction } from '../database/transaction.ts'
import { timed } from '../diagnostics.ts'
import { checkOption, isBalance } from '../options/validate.ts'
import type { Call, Request } from '../runtime/call.ts'
import { decideOne } from '../runtime/decide.ts'
import { watchWait } from '../runtime/long-waits.ts'
import { fillStatement } from '../statements/fill.ts'
import { removeStatement } from '../statements/remove.ts'
import { kept } from '../statements/statements.ts'
import type { At } from './bounds.ts'
import { type Checker, isRequest } from './checker.ts'
import { runOn } from './run-on.ts'
import { withinTimeout } from './within-timeout.ts'

/** Makes the key's limit full again. */
export function reset(checker: Checker, call: Call, tx: At): Promise<void> {
  return withinTimeout([checker], tx, (at) => resetIn(checker, call, at))
}

async function resetIn(checker: Checker, call: Call, tx: At): Promise<void> {
  checkOption(
    !isBalance(checker.config.limiter),
    'A balance cannot be reset: that would take away paid credits, or give back used ones.',
  )
  const { prefix, clock } = checker.config.namespace
  // If the clock fails, it must fail before the row is changed.
  clock?.()
  // It is enough to remove the row, unless a new row would have less than the whole limit.
  const isEnough = !isRequest(call) || call.limiter.startsFull
  const resetOn = (connection: Connection) =>
    isEnough ? removeRow(checker, call.key, connection) : makeWhole(checker, call, connection)
  const forget = () => checker.forgetRow(call.key)
  const about = { prefix, statement: 'remove', keys: 1 } as const
  // When its time is over, the row may be changed already, or be changed later.
  const stage = { mayCharge: true, mayWait: true, isContended: false }
  await runOn(checker, tx, stage, async (connection) => {
    const change = () => timed(about, () => resetOn(connection))
    // Units of a lease that came back after the reset would lower the count of the new row.
    if (!connection.isTransaction) await checker.leasesReturned()
    await (connection.isTransaction ? change() : watchWait(prefix, change)).finally(forget)
  }).finally(forget)
}

async function removeRow(checker: Checker, key: string, connection: Connection): Promise<void> {
  const { table, namespace } = checker.config
  const statement = kept(table.statements, 'remove', () => removeStatement(table.table))
  await runOnce(connection, statement, { prefix: namespace.prefix, key })
}

/** Writes the whole limit into the row of a key. */
async function makeWhole(checker: Checker, call: Request, connection: Connection): Promise<void> {
  const { table, namespace } = checker.config
  const { key, limiter } = call
  const { algorithm, params } = limiter
  if (await table.distributed?.()) return refill(checker, call, connection)
  const clock = namespace.clock?.() ?? null
  const name = `fill ${algorithm.name} ${clock !== null}`
  const statement = kept(table.statements, name, () => fillStatement(table.table, algorithm, clock !== null))
  const values = { prefix: namespace.prefix, key, clock, ...wholeState(limiter, 0, params) }
  await runOnce(connection, statement, values)
}

/**
 * The same in a table that Citus has distributed. It works out the time of an insert on the coordinator, so the
 * row is removed, and then made by a refund, whose time is that of the row's own server.
 */
async function refill(checker: Checker, call: Request, connection: Connection): Promise<void> {
  const { limit } = call.limiter.params
  const refund = { ...call, rate: -limit, purpose: 'adjust' } as const
  const work = async (own: Connection) => {
    await removeRow(checker, call.key, own)
    const asking = { ...checker.config, connection: own, commit: 'as the session' } as const
    await decideOne(asking, { request: refund, calls: { length: 1 } })
  }
  await (connection.isTransaction ? work(connection) : inTransaction(connection, work))
}
