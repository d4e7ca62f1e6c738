import { usageOf } from '../kernel/answers/answer.ts'
import { behindBlock } from '../kernel/answers/capacity.ts'
import { afterCalls } from '../kernel/answers/outcome.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { type Duration, parseDuration } from '../kernel/duration.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { isFunded } from '../kernel/engine/funds.ts'
import { lookAtGate } from '../kernel/engine/gate.ts'
import { reset } from '../kernel/engine/maintenance.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { afterChange } from '../shared/after-change.ts'

/** Blocks the call's key for a time. During an outage it always throws; `onError` does not apply. */
export function blockKey(called: LimiterCall, duration: Duration, tx: At): Promise<Usage> {
  return withinTimeout([called.checker], tx, (at) => blockCalled(called, duration, at))
}

async function blockCalled(called: LimiterCall, duration: Duration, tx: At): Promise<Usage> {
  const { checker, call } = called
  const blocks = blocksOf(called)
  const lengthMs = parseDuration(duration, 'The block')
  if (lengthMs > (blocks.call.limiter.params['maxMs'] ?? 0)) {
    throw new RatelimitError('INVALID_DURATION', 'The block must not be longer than the max of the lockout.')
  }
  const outcome = await blocks.checker.decide({ ...blocks.call, rate: lengthMs, purpose: 'block' }, tx)
  const block = usageOf(blocks.call.limiter, afterCalls(outcome, 1))
  if (blocks.checker === checker) return block
  const look = async () => {
    if (isFunded(called)) return called.funds.look(tx)
    const { decision } = await checker.decide({ ...call, rate: 0, purpose: 'look' }, tx)
    return usageOf(call.limiter, decision)
  }
  const usage = await afterChange(checker, tx, 'The key is blocked, but the limit was not read.', look)
  return behindBlock(usage, block.blockedUntil)
}

/** Ends the block of the call's key. */
export async function unblockKey(called: LimiterCall, tx: At): Promise<void> {
  const { checker, call } = blocksOf(called)
  await reset(checker, call, tx)
}

/**
 * Where the blocks of the call's key are: in its own row, or in that of the gate.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
function blocksOf({ checker, call }: LimiterCall): LimiterCall {
  const look = lookAtGate(checker, call.key)
  if (look) return look
  checkOption(
    call.limiter.algorithm.numbers.block !== undefined,
    'block and unblock need use: [blocks()], or a limiter made by lockout.',
  )
  return { checker, call }
}
