import type { Limiter } from '../algorithms/algorithm.ts'
import { CLOSING, noting, type Opened, openedIn } from '../algorithms/estimate.ts'
import type { PaidPart } from '../answers/answer.ts'
import { windowEndOf } from '../answers/refundable.ts'
import { inTurn } from '../base/in-turn.ts'
import type { At } from '../check/bounds.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import type { FoundCall, FundedCall } from '../check/funds.ts'
import { runOn } from '../check/run-on.ts'
import { uncharged } from '../database/database-error.ts'
import { runOnce } from '../database/run.ts'
import { RatelimitError } from '../errors.ts'
import { callOf } from '../options/validate.ts'
import type { Decision, Request } from '../runtime/call.ts'
import { lookAt } from '../runtime/look-at.ts'
import { stateIn } from '../runtime/number-columns.ts'
import type { ChargedIn } from '../several/charged-in.ts'
import { found } from '../several/enough.ts'
import { keyOfShare, namesOf, payerIn, sharesOf } from '../several/names.ts'
import type { Payer } from '../several/send-payers.ts'
import { type Asked, askedOf, takeTogether } from '../several/together.ts'
import { openStatement } from '../statements/estimates.ts'
import { kept } from '../statements/statements.ts'
import type { Estimate } from './settlement.ts'

/** The estimate of one limit under a name. */
export interface Part {
  readonly checker: Checker
  readonly key: string
  /** The key of its row. */
  readonly row: string
  /** The limit under which it is settled. */
  readonly limiter: Limiter
  /** Whether the caller gave the limit. Otherwise it may be outdated, and must not replace the row's state. */
  readonly isPresent: boolean
  /** Whether the limiter is known to be the plan of the reservation, or the present one. */
  readonly hasPlan: boolean
  /** The plan that was charged, if it is known. */
  readonly charged?: Limiter
  /** Where it was charged, if this process knows that. */
  readonly chargedIn?: ChargedIn
  /** The call that funds have paid. Undefined if the limit has one row, or none. */
  readonly funded?: FundedCall | undefined
}

/** The row of an open estimate, or of a share in it, and the call that closes it. */
interface HeldRow extends LimiterCall {
  readonly call: Request
  readonly opened: Opened
  readonly isFound?: true
}

/** An open estimate as it was seen. */
export interface Held {
  readonly part: Part
  readonly opened: Opened
  /** Its row, and those of the shares in it. */
  readonly rows: readonly HeldRow[]
  /** What rows of funds have paid, in the order of paying. */
  readonly shares: readonly PaidPart[]
}

/** The estimates of calls under a name, and the calls that make their rows. */
export interface Opening {
  readonly parts: readonly Part[]
  readonly openings: readonly OpeningCall[]
}

interface OpeningCall extends LimiterCall {
  readonly call: Request
}

/** The calls that open estimates and the shares in them, each with the calls whose payments it notes. */
export function notesOf(
  { openings }: Opening,
  payers: readonly Payer[],
): ReadonlyMap<LimiterCall, readonly LimiterCall[]> {
  const notes = payers.flatMap(({ call, rows, purse }, place) => {
    const own = openings[place] as OpeningCall
    const opening = purse?.rate === 0 && call.call.rate > 0 ? passed(own) : own
    // A debt gets nothing back.
    const sharing = purse ? rows.filter(({ pays }) => pays !== 'what it owes') : []
    const shares = sharing.map((row, order): [FoundCall, readonly LimiterCall[]] => {
      const key = keyOfShare(opening.call.key, order, row.call.key)
      const { opener } = sharesOf(call.checker)
      return [{ checker: opener, call: { ...opening.call, key }, isFound: true }, [row]]
    })
    return [[opening, rows] as const, ...shares]
  })
  return new Map(notes)
}

/** The call that opens an estimate that a dry run lets pass: its row notes that nothing was charged. */
function passed({ checker, call }: OpeningCall): OpeningCall {
  return { checker, call: { ...call, limiter: noting(call.limiter, PASSED) } }
}

const PASSED = { rate: 0, at: Number.POSITIVE_INFINITY, before: 0, passed: 1 }

/** The call that takes one unit of the row. */
export function takenFrom(look: Request): Request {
  return { ...look, rate: 1, purpose: 'take' }
}

/** Open estimates that were seen, with the shares in them. It reads these, and locks nothing. */
export function withShares(parts: readonly Part[], seen: readonly Opened[], tx: At): Promise<Held[]> {
  return inTurn(parts, async (part, place): Promise<Held> => {
    const { checker, row, funded } = part
    const shares = funded ? await sharesIn(part, tx) : []
    const opened = seen[place] as Opened
    const own = { checker: namesOf(checker).closer, call: takenFrom(lookAt(row, CLOSING)), opened }
    const paid = shares.flatMap(({ call, opened: { rate, madeMs } }) =>
      funded ? [{ call: funded.funds.payerOf(payerIn(call.key).key, madeMs ?? 0), amount: rate }] : [],
    )
    return { part, opened, rows: [own, ...shares], shares: paid }
  })
}

/** The rows that say what rows of funds have paid of an open estimate, in the order of paying. */
async function sharesIn({ checker, row }: Part, tx: At): Promise<HeldRow[]> {
  const { closer } = sharesOf(checker)
  const { namespace, table } = closer.rows
  const statement = kept(table.statements, 'open true', () => openStatement(table.table, true))
  const values = { prefix: namespace.prefix, from: `${row}/`, to: `${row}/z`, size: Number.MAX_SAFE_INTEGER }
  const rows = await runOn(checker, tx, 'looks', (connection) =>
    uncharged(runOnce(connection, statement, values)),
  )
  const shares = rows.flatMap((each): HeldRow[] => {
    const opened = openedIn(stateIn(each, CLOSING))
    const call = takenFrom(lookAt(String(each['key']), CLOSING))
    return opened ? [{ checker: closer, call, opened, isFound: true }] : []
  })
  return shares.toSorted((one, other) => payerIn(one.call.key).place - payerIn(other.call.key).place)
}

/**
 * Looks at the estimates. One statement sees those of a name as they were at one time.
 *
 * @throws RatelimitError `NOT_RESERVED`
 */
export async function look(parts: readonly Part[], tx: At): Promise<Opened[]> {
  const calls = lookingAt(parts)
  const [only, ...more] = calls
  const states =
    only && more.length === 0
      ? [(await only.checker.decide(only.call, tx)).decision]
      : await looksAt(askedOf(calls, tx), calls)
  return states.map(({ state }) => {
    const seen = openedIn(state)
    if (seen) return seen
    throw new RatelimitError(
      'NOT_RESERVED',
      'There is no reservation with this key and id: it was denied or rolled back, or it was settled long ago.',
    )
  })
}

/** The calls that look at the estimates. In a list, they give its entries the id. */
export function lookingAt(parts: readonly Part[]): LimiterCall[] {
  return parts.map(({ checker, row }) => {
    const { closer } = namesOf(checker)
    return { checker: closer, call: callOf(closer.rows.namespace.prefix, CLOSING, row, { rate: 0 }) }
  })
}

async function looksAt(asked: Asked, calls: readonly LimiterCall[]): Promise<Decision[]> {
  const { looks } = await takeTogether(asked)
  return calls.map((call) => found(looks, found(asked.rowOf, call)))
}

/** What is known of the estimate that is settled. */
export function estimateIn({ key, limiter, charged }: Part, seen: Opened): Estimate {
  const { rate, windowStart, usedBefore, refundableUntil, passed, columns } = seen
  return {
    key,
    paid: { rate, windowStart, usedBefore },
    refundableUntil,
    windowEnd: seen.windowEnd ?? windowEndOf(charged ?? limiter, seen),
    how: passed ? 'passed' : 'charged',
    limit: limiter.limit,
    layout: columns.join(),
  }
}
