import { CLOSING, costOf, type Opened } from '../algorithms/estimate.ts'
import { allowanceOf } from '../answers/answer.ts'
import type { Allowed } from '../answers/results.ts'
import type { LimiterCall } from '../check/checker.ts'
import { runOn } from '../check/upkeep.ts'
import type { Database } from '../database/database.ts'
import { inTransactionIf } from '../database/transaction.ts'
import { RatelimitError } from '../errors.ts'
import { callOf, checkLimiter } from '../options/validate.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { found } from '../several/enough.ts'
import { namesOf } from '../several/names.ts'
import { fits } from '../several/parts.ts'
import { type Asked, askedOf, takeTogether } from '../several/together.ts'
import { recall } from './charged.ts'
import { estimateIn, look, type Part } from './part.ts'
import {
  checkActual,
  checkPlan,
  hasPaid,
  type Settled,
  settle,
  settledAnswer,
  settlementOf,
} from './settlement.ts'

// How reservations with a name are settled: those of one name together, all or none.

/** What parts are settled with. */
export interface Costs {
  /** What the row of each part remembers. The same again is a repeated settlement. */
  readonly remembered: readonly number[]
  /** The cost of each part, which may depend on the estimates. Default: what is remembered. */
  of?(rates: readonly number[]): readonly number[]
  /** What follows in the same transaction, if something does. */
  after?(rates: readonly number[]): ((tx: Database) => Promise<void>) | undefined
}

/** How parts were settled. */
export interface SettledParts {
  readonly answers: readonly Allowed[]
  /** The estimates. Undefined if they were settled before with the same costs. */
  readonly rates: readonly number[] | undefined
}

/** A settlement may find that another one was faster. After this many, something else is wrong. */
const MAX_ATTEMPTS = 50

/** Settles the estimate of one limit. */
export async function settleOne(part: Part, actual: number, tx: Database | undefined): Promise<Allowed> {
  checkLimiter(part.limiter)
  checkActual(actual, part.limiter)
  const { answers } = await settleParts([part], { remembered: [actual] }, tx)
  return answers[0] as Allowed
}

/**
 * Settles open estimates. If this process has not charged them, it reads the rows without a lock. Then it
 * settles what it knows. If another settlement was faster, it reads again.
 */
export async function settleParts(
  parts: readonly Part[],
  costs: Costs,
  tx: Database | undefined,
): Promise<SettledParts> {
  let known = recall(parts)
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const seen = known ?? (await look(parts, tx))
    known = undefined
    if (seen.some(({ isOpen }) => !isOpen)) {
      return { answers: await repeated(parts, seen, costs.remembered, tx), rates: undefined }
    }
    const settled = settledWith(parts, seen, costs)
    const answers = await settleSeen(parts, seen, settled, costs, tx)
    if (answers) return { answers, rates: seen.map(({ rate }) => rate) }
  }
  throw new RatelimitError(
    'CONTENTION',
    `Others settled the reservation and made it again ${MAX_ATTEMPTS} times. Nothing was charged.`,
    { contended: true },
  )
}

/** Ends an open estimate: keeps what it has charged, or gives it back. Undefined if another call was faster. */
export async function endEstimate(
  part: Part,
  seen: Opened,
  as: 'release' | 'charge',
  tx: Database,
): Promise<Allowed | undefined> {
  const costs = { remembered: [as === 'release' ? 0 : seen.rate] }
  const answers = await settleSeen([part], [seen], settledWith([part], [seen], costs), costs, tx)
  return answers?.[0]
}

/** @throws RatelimitError `INVALID_OPTION` */
function settledWith(parts: readonly Part[], seen: readonly Opened[], costs: Costs): Settled[] {
  const rates = seen.map(({ rate }) => rate)
  const actuals = costs.of?.(rates) ?? costs.remembered
  return parts.map((part, place): Settled => {
    const own = seen[place] as Opened
    const estimate = estimateIn(part, own)
    const { limiter, isPresent, hasPlan } = part
    checkPlan(estimate, limiter, isPresent, own.hasPlan && !hasPlan)
    return { estimate, actual: actuals[place] as number, limiter, isPresent }
  })
}

/** The answers if the estimates were settled before. */
function repeated(
  parts: readonly Part[],
  seen: readonly Opened[],
  remembered: readonly number[],
  tx: Database | undefined,
): Promise<Allowed[]> {
  if (!seen.every((each, place) => each.wasSettledWith(remembered[place] as number))) {
    throw new RatelimitError(
      'ALREADY_SETTLED',
      'The reservation was settled before, with another cost. If it had expired, settleExpired may have ended it.',
    )
  }
  const present = async ({ checker, key, limiter }: Part): Promise<Allowed> => {
    const { config } = checker
    const call = callOf(config.namespace.prefix, config.limiter, key, { rate: 0, limiter })
    return { ...allowanceOf(await checker.decide(call, tx), config.reporting), repeated: true }
  }
  return Promise.all(parts.map(present))
}

/** Settles the estimates if they are still those that were seen. Undefined if they are not. */
function settleSeen(
  parts: readonly Part[],
  seen: readonly Opened[],
  settled: readonly Settled[],
  { remembered, after }: Costs,
  tx: Database | undefined,
): Promise<Allowed[] | undefined> {
  const closings = parts.map(({ checker, row }, place): LimiterCall => {
    const { closer } = namesOf(checker)
    const call = callOf(closer.config.namespace.prefix, CLOSING, row, {})
    return {
      checker: closer,
      call: { ...call, ...costOf(seen[place] as Opened, remembered[place] as number) },
    }
  })
  const mayBeLate = parts.some(({ checker }, place) => {
    const { estimate, limiter } = settled[place] as Settled
    return checker.config.graceMs > 0 && estimate.how === 'charged' && hasPaid(limiter, estimate)
  })
  const more = after?.(seen.map(({ rate }) => rate))
  if (!mayBeLate && !more) return settleTogether(parts, settled, closings, tx)
  const [{ checker }] = parts as readonly [Part]
  const stage = { mayCharge: true, mayWait: true, isContended: true }
  const settleIn = async (own: Database) => {
    if (!mayBeLate) {
      // It locks the limits, which every list locks before the rows of estimates.
      await more?.(own)
      return settleTogether(parts, settled, closings, own)
    }
    const answers = await settleInGrace(parts, settled, closings, own)
    if (answers) await more?.(own)
    return answers
  }
  return runOn(checker, tx, stage, (connection) =>
    inTransactionIf(
      connection,
      ({ db }) => settleIn(db),
      (answers) => answers !== undefined,
    ),
  )
}

/** Settles by one list, which closes the rows and corrects the limits. */
async function settleTogether(
  parts: readonly Part[],
  settled: readonly Settled[],
  closings: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Allowed[] | undefined> {
  const settlements = parts.map(({ checker }, place) => ({
    checker,
    call: settlementOf(checker, settled[place] as Settled),
  }))
  const asked = askedOf(settlements, tx, ...closings)
  const decisions = await takeTogether(asked)
  if (!areOpen(closings, asked, decisions)) return undefined
  return settlements.map((settlement, place) => {
    const limit = asked.rowOf.get(settlement)
    const outcome = limit
      ? { call: limit, decision: found(decisions.taken, limit), place: 0 }
      : found(asked.unlimited, settlement)
    return settledAnswer(outcome, settled[place] as Settled, settlement.checker.config.reporting)
  })
}

/** The same where a period that paid may be over: its correction takes statements of its own. */
async function settleInGrace(
  parts: readonly Part[],
  settled: readonly Settled[],
  closings: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Allowed[] | undefined> {
  const asked = askedOf(closings, tx)
  if (!areOpen(closings, asked, await takeTogether(asked))) return undefined
  const answers: Allowed[] = []
  for (const [place, { checker }] of parts.entries()) {
    answers.push(await settle(checker, settled[place] as Settled, tx))
  }
  return answers
}

/** Whether the estimates were open, and as they were seen. */
function areOpen(closings: readonly LimiterCall[], { rowOf }: Asked, { looks }: Decisions): boolean {
  return closings.every((each) => {
    const row = found(rowOf, each)
    return fits(row, found(looks, row))
  })
}
