import type { Limiter } from '../algorithms/algorithm.ts'
import { CLOSING, costOf, type Opened, opened, openedIn } from '../algorithms/estimate.ts'
import { checkOptions, type NamesOf } from '../base/check-options.ts'
import { type Answered, allowanceOf } from '../check/answer.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import type { Allowed, LimitResult } from '../check/results.ts'
import { runOn } from '../check/upkeep.ts'
import type { Database } from '../database/database.ts'
import { inTransaction } from '../database/transaction.ts'
import { parseDuration } from '../duration.ts'
import { RatelimitError } from '../errors.ts'
import { CALL_NAMES, type CallOptions } from '../options/calls.ts'
import type { NamedReserveOptions } from '../options/reserve.ts'
import { callOf, checkKey, checkLimiter, checkOption } from '../options/validate.ts'
import type { Call } from '../runtime/call.ts'
import { found } from '../several/enough.ts'
import { decideAll } from '../several/limit-all.ts'
import { keyOfName, nameIn, namesOf } from '../several/names.ts'
import { fits } from '../several/parts.ts'
import { askedOf, isRepeated, takeTogether } from '../several/together.ts'
import {
  checkActual,
  checkPlan,
  type Estimate,
  hasPaid,
  type Settled,
  settle,
  settledAnswer,
  settlementOf,
  windowEndOf,
} from './settlement.ts'

// Reservations with a name. The open estimate is a row, which is made by the statement that charges the limit,
// and settled by the statement that corrects it.

/** The name of a reservation. */
export interface ReservationName {
  /** The key that was given to `reserve`. */
  readonly key: string
  /** The `id` that was given to `reserve`. */
  readonly id: string
}

const NAME_NAMES: NamesOf<ReservationName> = { key: true, id: true }

/** A settlement may find that another one was faster. After so many, something else is wrong. */
const MAX_ATTEMPTS = 50

/** The answer to a call that reserves with a name, and how its estimate is settled. */
interface NamedAnswer {
  readonly answer: LimitResult
  /** The key of its row. */
  readonly row: string
  commit(actual: number, options?: CallOptions): Promise<Allowed>
}

/** Charges the estimate and gives it a name, or charges nothing if the name is in use. */
export async function reserveNamed(
  checker: Checker,
  estimate: Call,
  { id, expires, once, tx }: NamedReserveOptions,
): Promise<NamedAnswer> {
  const { config } = checker
  checkOption(once === undefined, 'A reservation has an id or once: its id is charged once.')
  checkNotDistributed(checker)
  if (estimate.rate === 0) {
    throw new RatelimitError('INVALID_RATE', 'The rate of a reservation with a name must be above 0.')
  }
  const row = await keyOfName(checker, estimate.key, id)
  const { limiter, rate, key } = estimate
  const limits = opened(parseDuration(expires, 'expires'), limiter, limiter !== config.limiter, rate)
  const { opener } = namesOf(checker)
  const opening = { checker: opener, call: callOf(opener.config.namespace.prefix, limits, row, {}) }
  const [answered] = await decideAll([{ checker, call: estimate }], tx, opening, true)
  const commit: NamedAnswer['commit'] = async (actual, options = {}) => {
    checkOptions(options, CALL_NAMES)
    const present = options.limiter
    const isPresent = present !== undefined
    const plan = { limiter: present ?? limiter, isPresent, hasPlan: true, charged: limiter }
    const settling = { key, row, actual, ...plan }
    return settleRow(checker, settling, options.tx)
  }
  return { answer: (answered as Answered).answer, commit, row }
}

/** A name is a row of its own, which may be on another server than the limit. */
function checkNotDistributed({ config }: Checker): void {
  checkOption(
    !config.table.distributed,
    'A reservation in a distributed table has no id. Reserve without one, and settle by the text.',
  )
}

/** Settles the reservation of a name, as its `commit` does. */
export async function settleName(
  checker: Checker,
  name: ReservationName,
  actual: number,
  options: CallOptions,
): Promise<Allowed> {
  checkOptions(name, NAME_NAMES, 'The name of a reservation')
  checkNotDistributed(checker)
  checkOption(
    typeof name.key === 'string',
    'settle needs the text of a reservation, or its name: { key, id }.',
  )
  const { hash, namespace } = checker.config
  const key = hash ? await hash(name.key) : name.key
  checkKey(key, namespace.prefix)
  return settleText(checker, await keyOfName(checker, key, name.id), actual, options)
}

/** The same by the key of its row, which a text has. */
export function settleText(
  checker: Checker,
  row: string,
  actual: number,
  options: CallOptions,
): Promise<Allowed> {
  const { key } = nameIn(row)
  const { limiter = checker.config.limiter, tx } = options
  const isPresent = options.limiter !== undefined
  return settleRow(checker, { key, row, actual, limiter, isPresent, hasPlan: isPresent }, tx)
}

/** Ends an open estimate that is locked: keeps what it has charged, or gives it back. */
export async function endEstimate(
  checker: Checker,
  row: string,
  seen: Opened,
  { as, limiter }: { readonly as: 'release' | 'charge'; readonly limiter: Limiter | undefined },
  tx: Database,
): Promise<Allowed | undefined> {
  const actual = as === 'release' ? 0 : seen.rate
  const isPresent = limiter !== undefined
  const own = limiter ?? checker.config.limiter
  const { key } = nameIn(row)
  const settling = { key, row, actual, limiter: own, isPresent, hasPlan: isPresent }
  const estimate = estimateIn(settling, seen)
  checkPlan(estimate, own, isPresent, seen.hasPlan && !isPresent)
  return settleSeen(checker, settling, seen, { estimate, actual, limiter: own, isPresent }, tx)
}

/** How the estimate of a row is settled. */
interface Settling {
  readonly key: string
  /** The key of its row. */
  readonly row: string
  readonly actual: number
  readonly limiter: Limiter
  readonly isPresent: boolean
  /** Whether the limiter is known to be the plan of the reservation, or the present one. */
  readonly hasPlan: boolean
  /** The plan that was charged, if it is known. */
  readonly charged?: Limiter
}

/**
 * Settles an open estimate. It reads the row without a lock, and then settles what it has seen. If another
 * settlement was faster, it reads again.
 */
async function settleRow(checker: Checker, settling: Settling, tx: CallOptions['tx']): Promise<Allowed> {
  const { actual, limiter, isPresent, hasPlan } = settling
  checkLimiter(limiter)
  checkActual(actual, limiter)
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const seen = await look(checker, settling, tx)
    if (!seen.isOpen) return repeated(checker, settling, seen, tx)
    const estimate = estimateIn(settling, seen)
    checkPlan(estimate, limiter, isPresent, seen.hasPlan && !hasPlan)
    const answer = await settleSeen(checker, settling, seen, { estimate, actual, limiter, isPresent }, tx)
    if (answer) return answer
  }
  throw new RatelimitError(
    'CONTENTION',
    `Others settled the reservation and made it again ${MAX_ATTEMPTS} times. Nothing was charged.`,
    { contended: true },
  )
}

/** @throws RatelimitError `NOT_RESERVED` */
async function look(checker: Checker, { row }: Settling, tx: CallOptions['tx']): Promise<Opened> {
  const { closer } = namesOf(checker)
  const { decision } = await closer.decide(
    callOf(closer.config.namespace.prefix, CLOSING, row, { rate: 0 }),
    tx,
  )
  const seen = openedIn(decision.state)
  if (seen) return seen
  throw new RatelimitError(
    'NOT_RESERVED',
    'There is no reservation with this key and id: it was denied or rolled back, or it was settled long ago.',
  )
}

/** The answer if the estimate was settled before. */
async function repeated(
  checker: Checker,
  { key, actual, limiter }: Settling,
  seen: Opened,
  tx: CallOptions['tx'],
): Promise<Allowed> {
  if (!seen.wasSettledWith(actual)) {
    throw new RatelimitError(
      'ALREADY_SETTLED',
      'The reservation was settled before, with another cost. If it had expired, settleExpired may have ended it.',
    )
  }
  const { config } = checker
  const call = callOf(config.namespace.prefix, config.limiter, key, { rate: 0, limiter })
  return { ...allowanceOf(await checker.decide(call, tx), config.reporting), repeated: true }
}

function estimateIn({ key, limiter, charged }: Settling, seen: Opened): Estimate {
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

/** Settles the estimate if it is still the one that was seen. Undefined if it is not. */
async function settleSeen(
  checker: Checker,
  { row, actual }: Settling,
  seen: Opened,
  settled: Settled,
  tx: CallOptions['tx'],
): Promise<Allowed | undefined> {
  const { closer } = namesOf(checker)
  const look = callOf(closer.config.namespace.prefix, CLOSING, row, {})
  const closing = { checker: closer, call: { ...look, ...costOf(seen, actual) } }
  const { graceMs, reporting } = checker.config
  const { estimate, limiter } = settled
  if (graceMs > 0 && estimate.how === 'charged' && hasPaid(limiter, estimate))
    return settleInGrace(checker, closing, settled, tx)
  const settlement = { checker, call: settlementOf(checker, settled) }
  const asked = askedOf([settlement], tx, closing)
  const decisions = await takeTogether(asked)
  if (isRepeated(asked, decisions)) return undefined
  const limit = asked.rowOf.get(settlement)
  const outcome = limit
    ? { call: limit, decision: found(decisions.taken, limit), place: 0 }
    : found(asked.unlimited, settlement)
  return settledAnswer(outcome, settled, reporting)
}

/** The same where the period that paid may be over: a correction takes statements of its own. */
function settleInGrace(
  checker: Checker,
  closing: LimiterCall,
  settled: Settled,
  tx: CallOptions['tx'],
): Promise<Allowed | undefined> {
  const stage = { mayCharge: true, mayWait: true, isContended: true }
  return runOn(checker, tx, stage, (connection) =>
    inTransaction(connection, async ({ db }) => {
      const asked = askedOf([closing], db)
      const { looks } = await takeTogether(asked)
      const own = found(asked.rowOf, closing)
      return fits(own, found(looks, own)) ? settle(checker, settled, db) : undefined
    }),
  )
}
