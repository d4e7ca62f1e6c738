import { allowanceOf } from '../kernel/answers/answer.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { untilDone } from '../kernel/database/retry.ts'
import type { At } from '../kernel/engine/bounds.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { callOf } from '../kernel/options/validate.ts'
import { type Named, recall } from './charged.ts'
import { checkCharged } from './charged-in.ts'
import { type Costs, costAt, type Settle, type SettledAll, type Settling, settlingWith } from './costs.ts'
import { costOf, type Opened } from './estimate-row.ts'
import { isPaidByFunds } from './funds.ts'
import { inTurn } from './in-turn.ts'
import { type Open, openOf, readOpened } from './open-estimates.ts'
import { settle } from './settle.ts'

// Estimates with a name. Each is a row. The statement that charges the limit makes it, and the one that settles
// the estimate closes it.

/** How the estimates of a name are settled. */
export function inRows(named: readonly Named[]): Settle {
  const calls = named.map(({ each }) => each)
  return settlingWith(calls, (settling, at) => settleNamed(named, settling, at))
}

/**
 * Settles open estimates. If this process has not charged them, it reads the rows without a lock. Then it
 * settles what it knows. If another settlement was faster, it reads again.
 */
async function settleNamed(named: readonly Named[], settling: Settling, tx: At): Promise<SettledAll> {
  const [{ each, chargedIn }] = named as readonly [Named]
  if (chargedIn) await checkCharged(each.checker, chargedIn, tx, true)
  let known = recall(named)
  return untilDone('settled the reservation and made it again', async () => {
    const seen = known ?? (await readOpened(named, tx))
    known = undefined
    checkForm(seen, settling.costs)
    if (isSettled(seen)) return repeated(named, seen, settling, tx)
    const open = await inTurn(named, (own, place) => openOf(own, seen[place] as Opened, tx))
    try {
      return await settleOpen(open, settling, tx)
    } catch (error) {
      // Another process may have settled them, before others gave the key another plan.
      const now =
        error instanceof RatelimitError && error.code === 'OTHER_PLAN' && (await readOpened(named, tx))
      if (now && isSettled(now)) return repeated(named, now, settling, tx)
      throw error
    }
  })
}

function isSettled(seen: readonly Opened[]): boolean {
  return seen.some(({ isOpen }) => !isOpen)
}

/**
 * Of one limit, a list of one cost says the same as the cost.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
function checkForm(seen: readonly Opened[], costs: Costs): void {
  const isEach = 'each' in costs
  if (seen.length === 1 || seen.every(({ isTogether }) => isTogether !== isEach)) return
  throw new RatelimitError(
    'INVALID_OPTION',
    isEach
      ? 'spend has taken one cost from these limits, so settle it with one number. Nothing was charged.'
      : 'Each of these limits has an estimate of its own, so give a list of costs. Nothing was charged.',
  )
}

/** Settles the estimates if they are still those that were seen. Undefined if they are not. */
export function settleOpen(
  open: readonly Open[],
  settling: Settling,
  tx: At,
): Promise<SettledAll | undefined> {
  const closings = open.flatMap(({ rows }, place) =>
    rows.map((row) => {
      // Each row remembers the cost. The same again is a repeated settlement.
      const { atLeast, rate } = costOf(row.opened, costAt(settling.costs, place))
      return { ...row, call: { ...row.call, atLeast, rate } }
    }),
  )
  return settle(open, settling, tx, closings)
}

/** The answers if the estimates were settled before. */
async function repeated(
  named: readonly Named[],
  seen: readonly Opened[],
  { costs, limiters = [] }: Settling,
  tx: At,
): Promise<SettledAll> {
  if (!seen.every((each, place) => each.wasSettledWith(costAt(costs, place)))) {
    throw new RatelimitError(
      'ALREADY_SETTLED',
      'The reservation was settled before, with another cost. If it had expired, settleExpired may have ended it.',
    )
  }
  const results = await inTurn(named, async ({ each }, place): Promise<Allowed> => {
    if (isPaidByFunds(each)) return (await each.funds.take(LOOK, tx)).answer([], 'repeated').answer as Allowed
    const { checker, call } = each
    const { rows, terms } = checker
    const limiter = limiters[place] ?? call.limiter
    const present = callOf(rows.namespace.prefix, terms.limiter, call.key, { rate: 0, limiter })
    return { ...allowanceOf(await checker.decide(present, tx), terms.reporting), repeated: true }
  })
  return { granted: named.map(() => 0), results, repeated: true }
}

const LOOK = { rate: 0, least: 0, lacking: 'denied' } as const
