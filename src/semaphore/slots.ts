import type { Outcome } from '../kernel/answers/outcome.ts'
import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { refusalAt } from '../kernel/engine/admission.ts'
import type { Bounds } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { SentCall } from '../kernel/engine/sent-call.ts'
import { ownError } from '../kernel/errors.ts'
import { UNHURRIED } from '../shared/unhurried.ts'
import { type Acquire, askForSlots, SLOT_GONE, type Slot, type SlotAnswer, type SlotRequest } from './ask.ts'
import { stopsAt } from './lease.ts'
import { lineFor, slotFreed } from './lines.ts'
import type { Caller, Look } from './look.ts'
import { senderOf } from './slot-queue.ts'
import type { LeaseAction } from './sql/lease.ts'
import { turnNumber } from './sql/turns.ts'

/** The answer to a request. */
type SlotDecision = Outcome<SlotRequest, SlotAnswer>

/** Leases a slot, if one is free. If its caller has given up by then, it ends the lease or its turn again. */
export async function lookAtSlots(
  checker: Checker,
  sought: Acquire,
  joined: Connection | undefined,
  caller: Caller = {},
): Promise<Look> {
  const free = (slot: Slot, bounds?: Bounds<SlotDecision>) =>
    change(checker, 'release', slot, sought.leaseMs, undefined, bounds)
  const lookAt = async (placed: SlotDecision): Promise<Look> => {
    const found = lookOf(placed, sought)
    const { slot, sentAt } = found
    if (!slot || joined || performance.now() < stopsAt(sentAt, sought.leaseMs)) return found
    await free(slot)
    return { ...found, slot: undefined, isLate: true }
  }
  if (joined) return decideIn(joined, checker, sought, lookAt)
  const giveBack = async (placed: SlotDecision) => {
    const found = lookOf(placed, sought)
    if (found.slot) await free(found.slot, UNHURRIED).catch(() => {})
    else endTurnOf(checker, sought, found)
  }
  // This runs for each call. A spread with changes takes V8 a microsecond.
  const { time, signal, isRest }: Bounds<never> = caller.bounds ?? checker.alone.bounds ?? {}
  return sendAlone(checker, sought, lookAt, { time, signal, isRest, giveBack }, caller)
}

/** The part of an answer to equal calls that is for one of them. Those before it have taken their slots. */
function lookOf({ decision: answer, place }: SlotDecision, { leaseMs }: Acquire): Look {
  const { slots, open, isNext, at, endsInMs, sentAt } = answer
  const taken = Math.min(place, slots.length)
  const firstEnd = Math.min(
    endsInMs ?? Number.POSITIVE_INFINITY,
    taken > 0 ? leaseMs : Number.POSITIVE_INFINITY,
  )
  return {
    slot: slots[place],
    open: open - taken,
    isNext,
    at,
    endsInMs: Number.isFinite(firstEnd) ? firstEnd : undefined,
    sentAt,
    isLate: false,
  }
}

/** Ends or extends the lease of a slot, and returns whether it was still held under this lease. */
export async function change(
  checker: Checker,
  purpose: LeaseAction,
  slot: Slot,
  leaseMs: number,
  tx: Database | undefined,
  bounds?: Bounds<SlotDecision>,
): Promise<boolean> {
  const isHeld = ({ decision }: SlotDecision) => decision.slots.length > 0
  try {
    const joined = checker.joined(tx)
    const request = { purpose, key: slot.key, fence: slot.fence, leaseMs }
    const wasHeld = await (joined
      ? decideIn(joined, checker, request, isHeld)
      : sendAlone(checker, request, isHeld, bounds))
    if (wasHeld && purpose === 'release' && !joined) slotFreed(checker, slot)
    return wasHeld
  } catch (error) {
    throw ownError(error)
  }
}

const ONE = { length: 1 }

/** Decides the request in the transaction that it joins. */
async function decideIn<T>(
  joined: Connection,
  checker: Checker,
  request: SlotRequest,
  resultOf: (placed: SlotDecision) => T | Promise<T>,
): Promise<T> {
  const [decision = SLOT_GONE] = await askForSlots(checker, joined, [{ request, calls: ONE }], true)
  return resultOf({ call: request, decision, place: 0 })
}

/** Ends the turn that a look has, unless calls wait in it. */
function endTurnOf(checker: Checker, sought: Acquire, { isNext, at }: Look): void {
  const { key, limit, since = at, waits } = sought
  if (waits && isNext && lineFor(checker, sought)?.since !== since) endTurn(checker, key, limit, since)
}

/** Ends the turn of a line that nobody waits in any more. If that fails, the turn ends by itself. */
export function endTurn(checker: Checker, key: string, limit: number, since: number): void {
  const slot = { key: `${key}#0000`, fence: turnNumber(limit, since) }
  sendAlone(checker, { ...slot, purpose: 'release', leaseMs: 0 }, () => {}).catch(() => {})
}

/** Sends the request alone, together with others. */
async function sendAlone<T>(
  checker: Checker,
  request: SlotRequest,
  resultOf: (placed: SlotDecision) => T | Promise<T>,
  bounds: Bounds<SlotDecision> | undefined = checker.alone.bounds,
  caller: Caller = {},
): Promise<T> {
  const refusal = refusalAt(checker.circuit, bounds)
  if (refusal) throw refusal
  const call = new SentCall(senderOf(checker), request, undefined, bounds, resultOf)
  caller.leave = () => call.giveUp(undefined)
  return call.result
}
