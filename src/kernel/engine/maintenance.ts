import { quietly } from '../errors.ts'
import { ID_PREFIX, RESERVED_PREFIX, SHARE_PREFIX } from '../sql/own-prefixes.ts'
import { MAX_SWEPT } from '../sql/remove.ts'
import { Sweeper } from '../store/sweep.ts'
import { Timeout } from './bounds.ts'
import type { Checker } from './checker.ts'
import { gateOf } from './gate.ts'
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
