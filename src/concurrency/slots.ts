import type { Checker } from '../check/checker.ts'
import { outsideQueue } from '../check/outside-queue.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { ownError } from '../errors.ts'
import type { LeaseAction } from '../statements/lease.ts'
import { turnNumber } from '../statements/turns.ts'
import { askForSlots, NOTHING, type Slot, type SlotRequest, type Sought } from './ask.ts'
import { stopsAt } from './lease.ts'
import { lineFor, slotFreed } from './lines.ts'
import type { Caller, Look } from './look.ts'
import { dispatcherOf, type Placed, SlotCall } from './slot-queue.ts'

/** Leases a slot, if one is free. If its caller has given up by then, it ends the lease or its turn again. */
export async function look(
  checker: Checker,
  sought: Sought,
  joined: Connection | undefined,
  caller: Caller,
): Promise<Look> {
  const request = { ...sought, purpose: 'acquire' } as const
  const lookAt = async (placed: Placed, isOver: () => boolean) => {
    const found = lookOf(placed, sought)
    const { slot, sentAt } = found
    if (joined) return found
    const hasGivenUp = isOver() || caller.hasGivenUp
    if (!slot) {
      if (hasGivenUp) endTurnOf(checker, sought, found)
      return found
    }
    const isLate = performance.now() >= stopsAt(sentAt, sought.leaseMs)
    if (isLate || hasGivenUp) {
      await send(checker, { ...slot, purpose: 'release', leaseMs: sought.leaseMs })
      slotFreed(checker, slot)
    }
    return isLate ? { ...found, slot: undefined, isLate } : found
  }
  return decide(checker, request, joined, lookAt, caller)
}

/** The part of an answer to equal calls that is for one of them. Those before it have taken their slots. */
function lookOf({ answer, place }: Placed, { leaseMs, since }: Sought): Look {
  const { slots, open, endsInMs, ...rest } = answer
  const slot = slots[place]
  const taken = Math.min(place, slots.length)
  const firstEnd = Math.min(
    endsInMs ?? Number.POSITIVE_INFINITY,
    taken > 0 ? leaseMs : Number.POSITIVE_INFINITY,
  )
  return {
    ...{ ...rest, slot, since, isLate: false, open: open - taken },
    endsInMs: Number.isFinite(firstEnd) ? firstEnd : undefined,
  }
}

/** Ends or extends the lease of a slot, and returns whether it was still held under this lease. */
export async function change(
  checker: Checker,
  purpose: LeaseAction,
  slot: Slot,
  leaseMs: number,
  tx: Database | undefined,
): Promise<boolean> {
  const isHeld = ({ answer }: Placed) => answer.slots.length > 0
  try {
    const joined = checker.joined(tx)
    const wasHeld = await decide(checker, { ...slot, purpose, leaseMs }, joined, isHeld)
    if (wasHeld && purpose === 'release' && !joined) slotFreed(checker, slot)
    return wasHeld
  } catch (error) {
    throw ownError(error)
  }
}

const ONE = { length: 1 }

/** Decides the request in the transaction that it joins, or together with others. */
async function decide<T>(
  checker: Checker,
  request: SlotRequest,
  joined: Connection | undefined,
  resultOf: (placed: Placed, isOver: () => boolean) => T | Promise<T>,
  caller?: Caller,
): Promise<T> {
  if (joined) {
    const [answer] = await askForSlots(checker, joined, [{ request, calls: ONE }], true)
    return resultOf({ answer: answer ?? NOTHING, place: 0 }, () => false)
  }
  const dispatcher = dispatcherOf(checker)
  const call = new SlotCall(request)
  const stage = {
    get mayCharge() {
      return call.batch !== undefined
    },
    get sending() {
      return call.batch?.sending
    },
    get mayWait() {
      return call.batch?.mayWait ?? true
    },
    get isContended() {
      return call.isContended
    },
    get statement() {
      return call.batch
    },
  }
  const giveUp = () => {
    const wasSent = call.isOver || dispatcher.cancel(call)
    if (!wasSent) call.withdraw()
    return { wasSent, isContended: call.isContended }
  }
  if (caller) caller.leaveQueue = giveUp
  const work = async (isOver: () => boolean) => {
    dispatcher.add(call)
    return resultOf(await call.placed, isOver)
  }
  return outsideQueue(checker, stage, work, () => ({ leave: () => {}, giveUp }))
}

/** Ends the turn that a look has, unless calls wait in it. */
function endTurnOf(checker: Checker, sought: Sought, { isNext, at }: Look): void {
  const { key, limit, since = at, waits } = sought
  if (waits && isNext && lineFor(checker, sought)?.since !== since) endTurn(checker, key, limit, since)
}

/** Ends the turn of a line that nobody waits in any more. If that fails, the turn ends by itself. */
export function endTurn(checker: Checker, key: string, limit: number, since: number): void {
  const slot = { key: `${key}#0000`, fence: turnNumber(limit, since) }
  send(checker, { ...slot, purpose: 'release', leaseMs: 0 }).catch(() => {})
}

async function send(checker: Checker, request: SlotRequest): Promise<void> {
  const call = new SlotCall(request)
  dispatcherOf(checker).add(call)
  await call.placed
}
