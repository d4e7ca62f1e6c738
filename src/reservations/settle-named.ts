import { costOf, type Opened } from '../algorithms/estimate.ts'
import { MAX_COUNT } from '../algorithms/limiter.ts'
import { allowanceOf } from '../answers/answer.ts'
import type { Allowed } from '../answers/results.ts'
import { inTurn } from '../base/in-turn.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import { runOn } from '../check/run-on.ts'
import { withinTimeout } from '../check/within-timeout.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { inTransactionIf } from '../database/transaction.ts'
import { RatelimitError } from '../errors.ts'
import { callOf } from '../options/validate.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { checkCharged } from '../several/charged-in.ts'
import { found } from '../several/enough.ts'
import { lockRows } from '../several/lock-rows.ts'
import { nameIn } from '../several/names.ts'
import { fits } from '../several/parts.ts'
import { type Asked, askedOf, takeTogether } from '../several/together.ts'
import { recall } from './charged.ts'
import { estimateIn, type Held, look, lookingAt, type Part, takenFrom, withShares } from './part.ts'
import { type Cost, settleCosts } from './settle-costs.ts'
import { checkCost, checkPlan, mayBeLate, settleIfLate } from './settlement.ts'

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
  checkCost(part.checker, actual, part)
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
    const answers = await settleSeen(await withShares(parts, seen, tx), costs, tx)
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
  held: Held,
  as: 'release' | 'charge',
  tx: Database,
): Promise<Allowed | undefined> {
  const answers = await settleSeen([held], { remembered: [as === 'release' ? 0 : held.opened.rate] }, tx)
  return answers?.[0]
}

/** @throws RatelimitError `INVALID_OPTION` */
function costsOf(held: readonly Held[], { of, remembered }: Costs): Cost[] {
  const actuals = of?.(held.map(({ opened }) => opened.rate)) ?? remembered
  return held.map(({ part, opened, shares: parts }, place): Cost => {
    const estimate = estimateIn(part, opened)
    const { limiter, isPresent, hasPlan } = part
    checkPlan(estimate, limiter, isPresent, opened.hasPlan && !hasPlan)
    return { estimate, actual: actuals[place] as number, limiter, isPresent, parts }
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
  const present = async ({ checker, key, limiter, funded }: Part): Promise<Allowed> => {
    if (funded) return { ...(await funded.funds.take(LOOK, tx)).present([]), repeated: true }
    const { rows, terms } = checker
    const call = callOf(rows.namespace.prefix, terms.limiter, key, { rate: 0, limiter })
    return { ...allowanceOf(await checker.decide(call, tx), terms.reporting), repeated: true }
  }
  return inTurn(parts, present)
}

const LOOK = { rate: 0, least: 0, lacking: 'denied' } as const

/** Settles the estimates if they are still those that were seen. Undefined if they are not. */
function settleSeen(held: readonly Held[], costs: Costs, tx: At): Promise<Allowed[] | undefined> {
  const settled = costsOf(held, costs)
  const closings = held.flatMap(({ rows }, place) =>
    rows.map((row) => {
      const { atLeast, rate } = costOf(row.opened, costs.remembered[place] as number)
      return { ...row, call: { ...row.call, atLeast, rate } }
    }),
  )
  const isInGrace = held.some(({ part }, place) => mayBeLate(part.checker, settled[place] as Cost))
  const more = costs.after?.(held.map(({ opened }) => opened.rate))
  const calls = held.map(({ part }) => part.funded ?? part)
  if (!isInGrace && !more) return settleCosts(calls, settled, tx, closings)
  const [{ part }] = held as readonly [Held]
  const settleIn = async (own: Connection) => {
    await lockHeld(held, own)
    if (isInGrace) return settleInGrace(held, settled, closings, more, own.db)
    await more?.(own.db)
    return settleCosts(calls, settled, own.db, closings)
  }
  return runOn(part.checker, tx, 'changes', (connection) =>
    inTransactionIf(connection, settleIn, (answers) => answers !== undefined),
  )
}

/** The same where a period that paid may be over: its correction takes statements of its own. */
async function settleInGrace(
  held: readonly Held[],
  settled: readonly Cost[],
  closings: readonly LimiterCall[],
  more: ((tx: Database) => Promise<void>) | undefined,
  tx: Database,
): Promise<Allowed[] | undefined> {
  const answers = new Map<Part, Allowed>()
  for (const [place, { part }] of held.entries()) {
    const own = settled[place] as Cost
    const late = await settleIfLate(part.checker, own, tx, nameIn(part.row).id)
    const inTime = () => settleCosts([part.funded ?? part], [own], tx, lookingAt([part]))
    const [answer] = late ? [late] : ((await inTime()) ?? [])
    answers.set(part, answer as Allowed)
  }
  await more?.(tx)
  const asked = askedOf(closings, tx)
  if (!areOpen(closings, asked, await takeTogether(asked))) return undefined
  return held.map(({ part }) => found(answers, part))
}

/**
 * Locks the limits and the estimates of parts in the order of every list, for statements that need only some of
 * them. One part has its statements in that order.
 */
export async function lockHeld(held: readonly Held[], connection: Connection): Promise<void> {
  if (held.length < 2) return
  const limits = await inTurn(held, async ({ part, shares }): Promise<readonly LimiterCall[]> => {
    const { checker, key, limiter } = part
    const { namespace } = checker.rows
    if (!part.funded) {
      return [{ checker, call: callOf(namespace.prefix, checker.terms.limiter, key, { limiter }) }]
    }
    const { rows } = await part.funded.funds.take(ALL, connection.db)
    const paying = shares.map(({ call }) => ({ checker: part.checker, call: takenFrom(call) }))
    return [...rows, ...paying]
  })
  const estimates = held.flatMap(({ rows }) => rows)
  await lockRows([...limits.flat(), ...estimates], connection)
}

const ALL = { rate: MAX_COUNT, least: MAX_COUNT, lacking: 'owed' } as const

/** Whether the estimates were open, and as they were seen. */
function areOpen(closings: readonly LimiterCall[], { rowOf }: Asked, { looks }: Decisions): boolean {
  return closings.every((each) => {
    const row = found(rowOf, each)
    return fits(row, found(looks, row))
  })
}
