import { isRequest } from '../answers/outcome.ts'
import type { Connection } from '../database/connection.ts'
import { timed } from '../diagnostics.ts'
import { quietly } from '../errors.ts'
import { ID_PREFIX, RESERVED_PREFIX, SHARE_PREFIX } from '../sql/own-prefixes.ts'
import { MAX_SWEPT } from '../sql/remove.ts'
import type { Call } from '../store/call.ts'
import { fill, removeRow } from '../store/fill.ts'
import { Sweeper } from '../store/sweep.ts'
import { type At, Timeout } from './bounds.ts'
import type { Checker } from './checker.ts'
import { forgetEverywhere } from './denials.ts'
import { gateOf } from './gate.ts'
import { withinTimeout } from './within-timeout.ts'
import { runOn } from './work.ts'

/**
 * Deletes all expired rows of the prefix, the ids of `once` and the rows of the gate, some at a time.
 * Rows that others have locked stay. Each statement has the whole timeout, because there may be many rows.
 *
 * @param hasShares Whether estimates have rows for the shares of those that pay. Default: `false`.
 */
export async function cleanUp(checker: Checker, hasShares = false): Promise<number> {
  const { rows, terms } = checker
  const { namespace } = rows
  const gate = gateOf(checker)
  const sweepers = [
    new Sweeper(rows, terms.keepEnded),
    ...[ID_PREFIX, RESERVED_PREFIX, ...(hasShares ? [SHARE_PREFIX] : [])].map(
      (before) =>
        new Sweeper({ ...rows, namespace: { ...namespace, prefix: before + namespace.prefix } }, false),
    ),
    ...(gate ? [new Sweeper(gate.rows, false)] : []),
  ]
  const clock = namespace.clock?.() ?? null
  let deleted = 0
  for (const sweeper of sweepers) deleted += await sweepAll(checker, sweeper, clock)
  return deleted
}

async function sweepAll(checker: Checker, sweeper: Sweeper, clock: number | null): Promise<number> {
  let deleted = 0
  for (;;) {
    const rows = await runOn(checker, undefined, 'looks', () => sweeper.sweep(clock))
    deleted += rows
    if (rows < MAX_SWEPT) return deleted
  }
}

/** The longest time that `close` takes: a database may never answer. */
const CLOSING_MS = 10_000

/** Gives back units that were taken in advance, and ends the layers. Gives up when the time is over. */
export function close(checker: Checker): Promise<void> {
  const closing = async () => {
    await checker.inAdvance?.close()
    await Promise.all(checker.terms.layers.map((layer) => quietly(() => layer.close?.())))
  }
  return new Promise((resolve, reject) => {
    const deadline = new Timeout(CLOSING_MS).begin({ over: resolve })
    closing()
      .then(resolve, reject)
      .finally(() => deadline.stop())
  })
}

/** Makes the key's limit full again. */
export function reset(checker: Checker, call: Call, tx: At): Promise<void> {
  return withinTimeout([checker], tx, (at) => resetIn(checker, call, at))
}

async function resetIn(checker: Checker, call: Call, tx: At): Promise<void> {
  const { prefix, clock } = checker.rows.namespace
  // If the clock fails, it must fail before the row is changed.
  clock?.()
  // It is enough to remove the row, unless a new row would have less than the whole limit.
  const isEnough = !isRequest(call) || call.limiter.startsFull
  const resetOn = async (connection: Connection) => {
    const target = { ...checker.rows, connection, commit: 'as the session' } as const
    if (isEnough) await removeRow(target, call.key)
    else await fill(target, call)
  }
  const forget = () => forgetEverywhere(checker.rows, call.key, 'reset')
  const about = { prefix, statement: 'remove', keys: 1 } as const
  await runOn(checker, tx, 'changes', async (connection) => {
    const change = () => timed(about, () => resetOn(connection))
    // Units in memory that came back after the reset would lower the count of the new row.
    if (!connection.isTransaction) await checker.inAdvance?.returned()
    await (connection.isTransaction ? change() : checker.alone.watch(change)).finally(forget)
  }).finally(forget)
}
