import { CLOSING, costOf, type Opened } from '../algorithms/estimate.ts'
import { allowanceOf } from '../answers/answer.ts'
import type { Allowed } from '../answers/results.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import { runOn } from '../check/run-on.ts'
import { withinTimeout } from '../check/within-timeout.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { inTransactionIf } from '../database/transaction.ts'
import { RatelimitError } from '../errors.ts'
import { callOf, checkLimiter } from '../options/validate.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { checkCharged } from '../several/charged-in.ts'
import { found } from '../several/enough.ts'
import { lockRows } from '../several/lock-rows.ts'
import { nameIn, namesOf } from '../several/names.ts'
import { fits } from '../several/parts.ts'
import { type Asked, askedOf, takeTogether } from '../several/together.ts'
import { recall } from './charged.ts'
import { estimateIn, look, lookingAt, type Part } from './part.ts'
import {
  checkActual,
  checkPlan,
  mayBeLate,
  type Settled,
  settledAnswer,
  settleIfLate,
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
export async function settleOne(part: Part, actual: number, tx: At): Promise<Allowed> {
  checkLimiter(part.limiter)
  checkActual(part.checker, actual, part.limiter)
  const { answers } = await settleParts([part], { remembered: [actual] }, tx)
  return answers[0] as Allowed
}

/**
 * Settles open estimates. If this process has not charged them, it reads the rows without a lock. Then it
 * settles what it knows. If another settlement was faster, it reads again.
 */
export function settleParts(parts: readonly Part[], costs: Costs, tx: At): Promise<SettledParts> {
  const checkers = parts.map(({ checker }) => checker)
  return withinTimeout(checkers, tx, (at) => settlePartsIn(parts, costs, at))
}

async function settlePartsIn(parts: readonly Part[], costs: Costs, tx: At): Promise<SettledParts> {
  const [{ checker, chargedIn }] = parts as readonly [Part]
  if (chargedIn) await checkCharged(checker, chargedIn, tx, true)
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
  tx: At,
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
  tx: At,
): Promise<Allowed[] | undefined> {
  const closings = parts.map(({ checker, row }, place): LimiterCall => {
    const { closer } = namesOf(checker)
    const call = callOf(closer.config.namespace.prefix, CLOSING, row, {})
    return {
      checker: closer,
      call: { ...call, ...costOf(seen[place] as Opened, remembered[place] as number) },
    }
  })
  const isInGrace = parts.some(({ checker }, place) => mayBeLate(checker, settled[place] as Settled))
  const more = after?.(seen.map(({ rate }) => rate))
  if (!isInGrace && !more) return settleTogether(parts, settled, closings, tx)
  const [{ checker }] = parts as readonly [Part]
  const stage = { mayCharge: true, mayWait: true, isContended: false }
  const settleIn = async (own: Connection) => {
    await lockParts(parts, own)
    if (isInGrace) return settleInGrace(parts, settled, closings, more, own.db)
    await more?.(own.db)
    return settleTogether(parts, settled, closings, own.db)
  }
  return runOn(checker, tx, stage, (connection) =>
    inTransactionIf(connection, settleIn, (answers) => answers !== undefined),
  )
}

/** Settles by one list, which closes the rows and corrects the limits. */
async function settleTogether(
  parts: readonly Part[],
  settled: readonly Settled[],
  closings: readonly LimiterCall[],
  tx: At,
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
  more: ((tx: Database) => Promise<void>) | undefined,
  tx: Database,
): Promise<Allowed[] | undefined> {
  const answers = new Map<Part, Allowed>()
  for (const [place, part] of parts.entries()) {
    const { checker, row } = part
    const own = settled[place] as Settled
    const late = await settleIfLate(checker, own, tx, nameIn(row).id)
    const [answer] = late ? [late] : ((await settleTogether([part], [own], lookingAt([part]), tx)) ?? [])
    answers.set(part, answer as Allowed)
  }
  await more?.(tx)
  const asked = askedOf(closings, tx)
  if (!areOpen(closings, asked, await takeTogether(asked))) return undefined
  return parts.map((part) => found(answers, part))
}

/**
 * Locks the limits and the estimates of parts in the order of every list, for statements that need only some of
 * them. One part has its statements in that order.
 */
export async function lockParts(parts: readonly Part[], connection: Connection): Promise<void> {
  if (parts.length < 2) return
  const limits = parts.map(({ checker, key, limiter }): LimiterCall => {
    const { namespace, limiter: own } = checker.config
    return { checker, call: callOf(namespace.prefix, own, key, { limiter }) }
  })
  const estimates = parts.map(({ checker, row }): LimiterCall => {
    const { closer } = namesOf(checker)
    return { checker: closer, call: callOf(closer.config.namespace.prefix, CLOSING, row, {}) }
  })
  await lockRows([...limits, ...estimates], connection)
}

/** Whether the estimates were open, and as they were seen. */
function areOpen(closings: readonly LimiterCall[], { rowOf }: Asked, { looks }: Decisions): boolean {
  return closings.every((each) => {
    const row = found(rowOf, each)
    return fits(row, found(looks, row))
  })
}
