import { afterCalls } from '../check/answer.ts'
import type { Database } from '../database/database.ts'
import { notAsExpected } from '../database/rows.ts'
import { RatelimitError } from '../errors.ts'
import type { Once } from '../options/calls.ts'
import type { Threshold } from '../options/choices.ts'
import { found, sourceOf } from '../several/enough.ts'
import { idCall } from '../several/ids.ts'
import type { Sharing } from '../several/sending.ts'
import { sharesOf } from '../several/shares.ts'
import { askedOf, isRepeated, takeTogether } from '../several/together.ts'
import { type Account, debtOf, type Grant, leftOf, read, type Seen } from './read.ts'

/** What to take from the credits of a key. */
export interface Cost {
  readonly rate: number
  /** The least that is worth taking. */
  readonly atLeast: number
  /** Whether what nobody has becomes a debt. */
  readonly force: boolean
  readonly once: Once | undefined
}

/** A part of a cost, and the grant that paid it; undefined for the debt. */
export interface Part {
  readonly grant: Grant | undefined
  readonly amount: number
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
const MAX_ATTEMPTS = 50

/** With thresholds, so many grants are locked at least, so that what is left in all is exact. */
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
    const left = seen.grants.filter((grant) => leftOf(grant) > 0)
    const total = left.reduce((sum, grant) => sum + leftOf(grant), 0)
    const rate = cost.force ? cost.rate : Math.max(Math.min(cost.rate, total - seen.debt), cost.atLeast)
    const isEnough = rate + seen.debt <= total
    // Without an id, a denial needs no other statement. With one, the call may have been charged before. Then
    // the first grant alone has too little too.
    if (!isEnough && !cost.force && cost.once === undefined) return denied(seen)
    const paying = isEnough ? firstOf(left, rate + seen.debt) : cost.force ? left : left.slice(0, 1)
    const locked = thresholds.length > 0 ? left.slice(0, Math.max(paying.length, MIN_LOCKED)) : paying
    const burned = await charge(account, { ...cost, rate }, seen, isEnough, locked, tx)
    if (burned.parts || burned.isRepeated || !isEnough) return burned
  }
  throw new RatelimitError(
    'CONTENTION',
    `Others took from the credits ${MAX_ATTEMPTS} times during the check. Nothing was charged.`,
    { contended: true },
  )
}

function denied(seen: Seen): Burned {
  return { parts: undefined, before: seen, after: seen, isRepeated: false }
}

/** The first grants that have the amount together. */
function firstOf(grants: readonly Grant[], amount: number): readonly Grant[] {
  let [rest, length] = [amount, 0]
  while (rest > 0 && length < grants.length) rest -= leftOf(grants[length++] as Grant)
  return grants.slice(0, length)
}

async function charge(
  account: Account,
  { rate, force, once }: Cost,
  seen: Seen,
  isEnough: boolean,
  grants: readonly Grant[],
  tx: Database | undefined,
): Promise<Burned> {
  const { checker } = account
  const taking = (request: Grant['request']) => ({
    checker,
    call: { ...request, rate, purpose: 'take' as const },
  })
  const calls = grants.map(({ request }) => taking(request))
  const pays = force && !isEnough ? 'the rest' : !force && seen.debt > 0 ? 'what it owes' : undefined
  const debt = pays && taking(debtOf(account))
  const all = debt ? (pays === 'the rest' ? [...calls, debt] : [debt, ...calls]) : calls
  const id = await idCall(once, [debt ?? calls[0] ?? taking(debtOf(account))])
  const asked = askedOf(all, tx, id)
  const order = all.map((each) => found(asked.rowOf, each))
  const sharing: Sharing = {
    rate,
    least: rate,
    order,
    debt: pays && debt && { row: found(asked.rowOf, debt), pays },
  }
  const decisions = await takeTogether(asked, sharing)
  const isOld = isRepeated(asked, decisions)
  const sources = order.map((row) => sourceOf(sharing, row, found(decisions.looks, row)))
  const shares = decisions.taken.size === decisions.looks.size ? sharesOf(sources, rate, rate) : undefined
  if (!shares && decisions.taken.size > 0) throw notAsExpected('contradicts itself')
  const seenAt = (done: boolean): Seen => {
    const state = { now: Math.max(seen.now, ...sources.map(({ snapshot }) => snapshot.now)), debt: seen.debt }
    const looks = new Map<Grant, Grant>()
    for (const [place, each] of all.entries()) {
      const { call, snapshot } = sources[place] as (typeof sources)[number]
      const share = done ? (shares?.[place] ?? 0) : 0
      const look =
        share === 0 ? snapshot : afterCalls({ call: { ...each.call, rate: share }, decision: snapshot }, 1)
      const grant = grants[calls.indexOf(each)]
      if (grant) looks.set(grant, { ...grant, look: { ...snapshot, ...look } })
      else state.debt = call.limiter.algorithm.numbers.used(look.state, look.now, look.params)
    }
    return { ...state, grants: seen.grants.map((grant) => looks.get(grant) ?? grant) }
  }
  const parts = shares?.flatMap((amount, place): Part[] => {
    const each = all[place] as (typeof all)[number]
    return amount === 0 ? [] : [{ grant: grants[calls.indexOf(each)], amount }]
  })
  return { parts, before: seenAt(false), after: seenAt(true), isRepeated: isOld }
}
