import { usageOf } from '../answers/answer.ts'
import { behindBlock } from '../answers/blocked.ts'
import { afterCalls } from '../answers/outcome.ts'
import type { Usage } from '../answers/results.ts'
import type { Connection } from '../database/connection.ts'
import { retrying } from '../database/retry.ts'
import { runOnce } from '../database/run.ts'
import { timed } from '../diagnostics.ts'
import { type Duration, parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import { checkOption, isBalance } from '../options/validate.ts'
import type { Call } from '../runtime/call.ts'
import { watchWait } from '../runtime/long-waits.ts'
import { Sweeper } from '../runtime/sweep.ts'
import { ID_PREFIX, RESERVED_PREFIX } from '../statements/own-prefixes.ts'
import { MAX_SWEPT, removeStatement } from '../statements/remove.ts'
import { kept } from '../statements/statements.ts'
import { afterChange } from './after-change.ts'
import { type At, watchBounds } from './bounds.ts'
import { type Checker, isRequest, type LimiterCall } from './checker.ts'
import { changing, gateOf } from './gate.ts'
import { outsideQueue, type Stage } from './outside-queue.ts'
import { withinTimeout } from './within-timeout.ts'

/** Adds the call's rate to a balance. During an outage it always throws; `onError` does not apply. */
export async function grant(checker: Checker, call: Call, tx: At): Promise<Usage> {
  const outcome = await checker.decide(grantOf(call), tx)
  return usageOf(call.limiter, afterCalls(outcome, outcome.place + 1))
}

/**
 * The call that adds the rate.
 *
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_RATE`
 */
export function grantOf(call: Call): Call {
  checkOption(isBalance(call.limiter), 'grant needs a limiter made by Ratelimit.balance.')
  if (call.rate <= 0)
    throw new RatelimitError('INVALID_RATE', 'The granted amount must be a whole number above 0.')
  return { ...call, purpose: 'grant' }
}

/** Blocks the call's key for a time. During an outage it always throws; `onError` does not apply. */
export async function block(checker: Checker, call: Call, duration: Duration, tx: At): Promise<Usage> {
  return withinTimeout([checker], tx, (at) => blockIn(checker, call, duration, at))
}

async function blockIn(checker: Checker, call: Call, duration: Duration, tx: At): Promise<Usage> {
  const blocks = blocksOf(checker, call)
  const lengthMs = parseDuration(duration, 'The block')
  if (lengthMs > (blocks.call.limiter.params['maxMs'] ?? 0)) {
    throw new RatelimitError('INVALID_DURATION', 'The block must not be longer than the max of the lockout.')
  }
  const outcome = await blocks.checker.decide({ ...blocks.call, rate: lengthMs, purpose: 'block' }, tx)
  const block = usageOf(blocks.call.limiter, afterCalls(outcome, 1))
  if (blocks.checker === checker) return block
  const look = () => checker.decide({ ...call, rate: 0, purpose: 'look' }, tx)
  const { decision } = await afterChange(checker, tx, 'The key is blocked, but the limit was not read.', look)
  return behindBlock(usageOf(call.limiter, decision), block.blockedUntil)
}

/** Ends the block of the call's key. */
export async function unblock(checker: Checker, call: Call, tx: At): Promise<void> {
  const blocks = blocksOf(checker, call)
  await reset(blocks.checker, blocks.call, tx)
}

/**
 * Where the blocks of the call's key are: in its own row, or in that of the gate.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
function blocksOf(checker: Checker, call: Call): LimiterCall {
  if (checker.config.blocks) return { checker: gateOf(checker), call: changing(call.key) }
  checkOption(
    call.limiter.algorithm.numbers.block !== undefined,
    'block and unblock need blocks: true, or a limiter made by Ratelimit.lockout.',
  )
  return { checker, call }
}

/** Makes the key's limit full again. */
export function reset(checker: Checker, call: Call, tx: At): Promise<void> {
  return withinTimeout([checker], tx, (at) => resetIn(checker, call, at))
}

async function resetIn(checker: Checker, call: Call, tx: At): Promise<void> {
  checkOption(
    !isBalance(checker.config.limiter),
    'A balance cannot be reset: that would take away paid credits, or give back used ones.',
  )
  const { table, namespace } = checker.config
  // If the clock fails, it must fail before the row is removed.
  namespace.clock?.()
  const statement = kept(table.statements, 'remove', () => removeStatement(table.table))
  const values = { prefix: namespace.prefix, key: call.key }
  const forget = () => checker.forgetRow(call.key)
  const about = { prefix: namespace.prefix, statement: 'remove', keys: 1 } as const
  // When its time is over, the row may be removed already, or be removed later.
  const stage = { mayCharge: true, mayWait: true, isContended: false }
  await runOn(checker, tx, stage, async ({ db, isTransaction }) => {
    const remove = () => timed(about, () => runOnce(db, statement, values))
    // Units of a lease that came back after the reset would lower the count of the new row.
    if (!isTransaction) await checker.leasesReturned()
    await (isTransaction ? remove() : watchWait(remove)).finally(forget)
  }).finally(forget)
  // A limit that does not start full has less than the limit without a row.
  if (!isRequest(call) || call.limiter.startsFull) return
  const { limit } = call.limiter.params
  await afterChange(checker, tx, 'The row was removed, but the limit may not be full. Call it again.', () =>
    checker.decide({ ...call, rate: -limit, purpose: 'adjust' }, tx),
  )
}

/**
 * Deletes all expired rows of the prefix, the ids of `once` and the blocks that have ended, some at a time.
 * Rows that others have locked stay.
 */
export function cleanUp(checker: Checker): Promise<number> {
  return runOn(checker, undefined, { mayCharge: false, mayWait: false, isContended: false }, async () => {
    const { home, table, namespace, keepEnded, blocks } = checker.config
    const sweepers = [
      new Sweeper(home.db, table, namespace, keepEnded),
      ...[ID_PREFIX, RESERVED_PREFIX].map(
        (before) => new Sweeper(home.db, table, { ...namespace, prefix: before + namespace.prefix }, false),
      ),
      ...(blocks ? [new Sweeper(home.db, table, gateOf(checker).config.namespace, false)] : []),
    ]
    const clock = namespace.clock?.() ?? null
    let deleted = 0
    for (const sweeper of sweepers) deleted += await sweepAll(sweeper, clock)
    return deleted
  })
}

async function sweepAll(sweeper: Sweeper, clock: number | null): Promise<number> {
  let deleted = 0
  for (;;) {
    const rows = await sweeper.sweep(clock)
    deleted += rows
    if (rows < MAX_SWEPT) return deleted
  }
}

/** The longest time that `close` takes: a database may never answer. */
const CLOSING_MS = 10_000

/** Gives back what is left of the leases, and writes counted denials. Gives up when the time is over. */
export function close(checker: Checker): Promise<void> {
  const closing = async () => {
    await checker.endLeases()
    if (checker.config.denials) await (await import('./denial-counts.ts')).writeDenials(checker.config)
  }
  return new Promise((resolve, reject) => {
    const stop = watchBounds({ timeoutMs: CLOSING_MS }, () => resolve())
    closing().then(resolve, reject).finally(stop)
  })
}

/** Runs the work in the transaction that it joins, or alone, where it is retried if it lost against another. */
export function runOn<T>(
  checker: Checker,
  tx: At,
  stage: Stage,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const joined = checker.joined(tx)
  if (joined) return work(joined)
  const running = async () => {
    await checker.config.ensureTables?.()
    return retrying(() => work(checker.config.home))
  }
  return outsideQueue(checker, stage, running, undefined, checker.boundsOf(tx))
}
