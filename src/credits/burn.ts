import type { Database } from '../database/database.ts'
import { notAsExpected } from '../database/rows.ts'
import { RatelimitError } from '../errors.ts'
import type { Once } from '../options/calls.ts'
import type { Threshold } from '../options/choices.ts'
import { checkOption } from '../options/validate.ts'
import { found } from '../several/enough.ts'
import { idCall } from '../several/ids.ts'
import type { Group } from '../several/sending.ts'
import { sharesOf } from '../several/shares.ts'
import { askedOf, isRepeated, takeTogether } from '../several/together.ts'
import { attempt } from './attempt.ts'
import {
  type DebtRule,
  debtCall,
  firstOf,
  type Part,
  type Payers,
  partsOf,
  payersOf,
  paysIn,
  seenAfter,
  sourcesIn,
} from './charge.ts'
import { type Account, type Grant, leftOf, read, type Seen } from './read.ts'

/** What to take from the credits of a key. */
export interface Cost {
  readonly rate: number
  /** The least that is worth taking. */
  readonly atLeast: number
  /** Whether units that no grant has become a debt. */
  readonly force: boolean
  readonly once: Once | undefined
}

/** What was taken. */
export interface Burned {
  /** The parts in the order in which they were paid. Undefined if nothing was taken. */
  readonly parts: readonly Part[] | undefined
  /** What there was before. */
  readonly before: Seen
  /** What there is now. */
  readonly after: Seen
  /** Whether the id was used before. */
  readonly isRepeated: boolean
}

/** Each attempt can find that others were faster. After this many, something else is wrong. */
export const MAX_ATTEMPTS = 50

/** A list has 50 rows at most. One may be the debt, and one an id. */
const MAX_PAYING = 48

/** With thresholds, at least this many grants are locked, so that what is left in all is exact. */
const MIN_LOCKED = 40

/**
 * Takes from the grants in their order, or takes nothing.
 *
 * The grants are read without a lock. Those that have enough are then charged as a list, which locks and
 * decides. If others have taken from them meanwhile, they are read again. So a denial is what a read has seen,
 * and grants that were made meanwhile cannot be missed.
 */
export async function burn(
  account: Account,
  cost: Cost,
  thresholds: readonly Threshold[],
  tx: Database | undefined,
): Promise<Burned> {
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const seen = await read(account, tx)
    const plan = planOf(cost, seen)
    if (!plan) return denied(seen)
    const { left, paying, rate, haveEnough, debt } = plan
    const locked = thresholds.length > 0 ? left.slice(0, Math.max(paying.length, MIN_LOCKED)) : paying
    const payers = payersOf(account, seen, locked, rate, debt)
    const burned = await attempt(
      account.checker,
      tx,
      (own) => charge({ ...cost, rate }, payers, own),
      ({ parts, isRepeated }) => parts !== undefined || isRepeated,
    )
    if (burned.parts || burned.isRepeated || !haveEnough) return burned
  }
  throw outrun()
}

/** What to charge, by what a read has seen. */
interface Plan {
  readonly rate: number
  /** The grants that have something left. */
  readonly left: readonly Grant[]
  /** Those of them that are to pay. */
  readonly paying: readonly Grant[]
  readonly debt: DebtRule
  readonly haveEnough: boolean
}

/**
 * Undefined if the call is denied.
 *
 * @throws RatelimitError `INVALID_OPTION` if it would take from too many grants.
 */
function planOf({ rate: asked, atLeast, force, once }: Cost, { grants, debt }: Seen): Plan | undefined {
  const left = grants.filter((grant) => leftOf(grant) > 0)
  // A call that may take less takes what it can lock.
  const rate = force ? asked : Math.max(Math.min(asked, sumOf(left.slice(0, MAX_PAYING)) - debt), atLeast)
  const haveEnough = rate + debt <= sumOf(left)
  // Without an id, a denial needs no other statement. With one, the call may have been charged before. Then the
  // first grant alone has too little too.
  if (!haveEnough && !force && once === undefined) return undefined
  const needed = haveEnough ? firstOf(left, rate + debt) : force ? left : left.slice(0, 1)
  checkOption(
    force || needed.length <= MAX_PAYING,
    `Such a call takes from at most ${MAX_PAYING} grants. Take a smaller rate, or call limit with a rate alone.`,
  )
  const common = { rate, left, paying: needed.slice(0, MAX_PAYING), haveEnough }
  if (!force) return { ...common, debt: debt > 0 ? 'paid' : 'left' }
  // A forced call is never denied: what the other grants have is owed until the next call takes it from them.
  return { ...common, debt: haveEnough && needed.length <= MAX_PAYING ? 'left' : 'takes the rest' }
}

function sumOf(grants: readonly Grant[]): number {
  return grants.reduce((sum, grant) => sum + leftOf(grant), 0)
}

/** The error of a call that has lost every race. */
export function outrun(): RatelimitError {
  return new RatelimitError(
    'CONTENTION',
    `Others took from the credits ${MAX_ATTEMPTS} times during the check. Nothing was charged.`,
    { contended: true },
  )
}

function denied(seen: Seen): Burned {
  return { parts: undefined, before: seen, after: seen, isRepeated: false }
}

async function charge({ rate, once }: Cost, payers: Payers, tx: Database | undefined): Promise<Burned> {
  const { account, rows } = payers
  const id = await idCall(once, [rows[0] ?? debtCall(account, rate)])
  const asked = askedOf(rows, tx, id)
  const order = rows.map((each) => found(asked.rowOf, each))
  const group: Group = { rate, least: rate, order, pays: paysIn(asked, payers) }
  const decisions = await takeTogether(asked, [group])
  const sources = sourcesIn(asked, group, decisions, payers)
  const shares = decisions.isDone ? sharesOf(sources, rate, rate) : undefined
  if (!shares && decisions.taken.size > 0) throw notAsExpected('contradicts itself')
  return {
    parts: shares && partsOf(payers, shares),
    before: seenAfter(payers, sources),
    after: seenAfter(payers, sources, shares),
    isRepeated: isRepeated(asked, decisions),
  }
}
