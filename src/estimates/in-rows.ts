import { allowanceOf } from '../kernel/answers/answer.ts'
import { windowEndOf } from '../kernel/answers/refundable.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { untilDone } from '../kernel/database/retry.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { found } from '../kernel/lists/enough.ts'
import { askedOf, takeTogether } from '../kernel/lists/together.ts'
import { callOf } from '../kernel/options/validate.ts'
import { type Decision, lookAt, type Request, requestFor } from '../kernel/store/call.ts'
import { stateIn } from '../shared/number-columns.ts'
import { type Named, recall } from './charged.ts'
import { checkCharged } from './charged-in.ts'
import { type Costs, checkSettling, costAt, type Settle, type SettledAll, type Settling } from './costs.ts'
import { CLOSING, costOf, type Opened, openedIn } from './estimate-row.ts'
import { isPaidByFunds } from './funds.ts'
import { inTurn } from './in-turn.ts'
import { namesOf, payerIn, shareCheckers } from './names.ts'
import { settle } from './settle.ts'
import type { Charged } from './settlement.ts'
import { openStatement } from './sql/estimates.ts'

// Estimates with a name. Each is a row. The statement that charges the limit makes it, and the one that settles
// the estimate closes it.

/** An open estimate as it was seen. */
export interface Open extends Charged {
  readonly opened: Opened
  /** Its row, and those of the shares in it. */
  readonly rows: readonly OpenRow[]
}

/** The row of an open estimate, or of a share in it, and the call that closes it. */
interface OpenRow extends LimiterCall {
  readonly call: Request
  readonly opened: Opened
  readonly isFound?: true
}

/** How the estimates of a name are settled. */
export function inRows(named: readonly Named[]): Settle {
  const calls = named.map(({ each }) => each)
  return (settling, tx) => {
    checkSettling(calls, settling)
    const checkers = calls.map(({ checker }) => checker)
    return withinTimeout(checkers, tx, (at) => settleNamed(named, settling, at))
  }
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
      // It says nothing if another process was faster, and has brought the other plan.
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

/** An open estimate that was seen, with the shares in it. It reads these, and locks nothing. */
export async function openOf(own: Named, opened: Opened, tx: At): Promise<Open> {
  const { each, row } = own
  const shares = isPaidByFunds(each) ? await openSharesOf(own, tx) : []
  const parts = shares.map(({ call, opened: { rate, madeMs } }) => {
    return { key: payerIn(call.key).key, madeMs: madeMs ?? 0, amount: rate }
  })
  const closing = { checker: namesOf(each.checker).closer, call: requestFor(row, CLOSING, 'take', 1), opened }
  const { rate, windowStart, usedBefore, refundableUntil, dryRun, columns } = opened
  const estimate: Charged['estimate'] = {
    paid: { rate, windowStart, usedBefore },
    parts,
    refundableUntil,
    windowEnd: opened.windowEnd ?? windowEndOf(each.call.limiter, opened),
    how: dryRun ? 'dry run' : 'charged',
    isReserved: true,
    layout: columns.join(),
    needsPlan: opened.hasPlan && !own.hasPlan,
    row,
  }
  return { each, estimate, opened, rows: [closing, ...shares] }
}

/** The rows that say what rows of funds have paid of an open estimate, in the order of paying. */
async function openSharesOf({ each: { checker }, row }: Named, tx: At): Promise<OpenRow[]> {
  const { closer } = shareCheckers(checker)
  const { namespace, table } = closer.rows
  const statement = kept(table.statements, 'open true', () => openStatement(table.table, true))
  const values = { prefix: namespace.prefix, from: `${row}/`, to: `${row}/z`, size: Number.MAX_SAFE_INTEGER }
  const rows = await runOn(checker, tx, 'looks', (connection) =>
    uncharged(runOnce(connection, statement, values)),
  )
  const shares = rows.flatMap((own): OpenRow[] => {
    const opened = openedIn(stateIn(own, CLOSING))
    const call = requestFor(String(own['key']), CLOSING, 'take', 1)
    return opened ? [{ checker: closer, call, opened, isFound: true }] : []
  })
  return shares.toSorted((one, other) => payerIn(one.call.key).place - payerIn(other.call.key).place)
}

/**
 * Looks at the estimates. One statement sees those of a name as they were at one time.
 *
 * @throws RatelimitError `NOT_RESERVED`
 */
async function readOpened(named: readonly Named[], tx: At): Promise<Opened[]> {
  const calls = looksAt(named)
  const [only, ...more] = calls
  const decisions =
    only && more.length === 0
      ? [(await only.checker.decide(only.call, tx)).decision]
      : await lookTogether(calls, tx)
  return decisions.map(({ state }) => {
    const seen = openedIn(state)
    if (seen) return seen
    throw new RatelimitError(
      'NOT_RESERVED',
      'There is no reservation with this key and id: it was denied or rolled back, or it was settled long ago.',
    )
  })
}

/** The calls that look at the rows of estimates. */
export function looksAt(named: readonly Named[]): LimiterCall[] {
  return named.map(({ each, row }) => ({ checker: namesOf(each.checker).closer, call: lookAt(row, CLOSING) }))
}

async function lookTogether(calls: readonly LimiterCall[], tx: At): Promise<Decision[]> {
  const asked = askedOf(calls, tx)
  const { looks } = await takeTogether(asked)
  return calls.map((call) => found(looks, found(asked.rowOf, call)))
}
