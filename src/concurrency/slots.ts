import type { Checker } from '../check/checker.ts'
import { outsideQueue } from '../check/outside-queue.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { ownError } from '../errors.ts'
import type { LeaseAction } from '../statements/lease.ts'
import { askForSlots, NOTHING, type Slot, type SlotAnswer, type SlotRequest, type Sought } from './ask.ts'
import { dispatcherOf, type Placed, SlotCall } from './slot-queue.ts'

/** What a call found that wants a slot. */
export interface Look extends Omit<SlotAnswer, 'slots'> {
  readonly slot: Slot | undefined
}

/** Who waits for a look. */
export interface Caller {
  hasGivenUp: boolean
  /** Takes the look out of the queue. If it was sent, the queue goes on without it. */
  leaveQueue?: () => { readonly wasSent: boolean; readonly isContended: boolean }
}

/** Leases a slot, if one is free. If its caller has given up by then, it releases the slot again. */
export async function look(
  checker: Checker,
  sought: Sought,
  joined: Connection | undefined,
  caller: Caller,
): Promise<Look> {
  const request = { ...sought, purpose: 'acquire' } as const
  const giveBack = async ({ slot }: Look) => {
    if (slot) await send(checker, { ...slot, purpose: 'release', leaseMs: sought.leaseMs })
  }
  const lookAt = async (placed: Placed, isOver: () => boolean) => {
    const found = lookOf(placed, sought.leaseMs)
    if (isOver() || caller.hasGivenUp) await giveBack(found)
    return found
  }
  return decide(checker, request, joined, lookAt, caller)
}

/** The part of an answer to equal calls that is for one of them. Those before it have taken their slots. */
function lookOf({ answer, place }: Placed, leaseMs: number): Look {
  const { slots, open, endsInMs, sentAt } = answer
  const slot = slots[place]
  const taken = Math.min(place, slots.length)
  const firstEnd = Math.min(
    endsInMs ?? Number.POSITIVE_INFINITY,
    taken > 0 ? leaseMs : Number.POSITIVE_INFINITY,
  )
  return { slot, open: open - taken, endsInMs: Number.isFinite(firstEnd) ? firstEnd : undefined, sentAt }
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
    return await decide(checker, { ...slot, purpose, leaseMs }, checker.joined(tx), isHeld)
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
    mayCharge: true,
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

async function send(checker: Checker, request: SlotRequest): Promise<void> {
  const call = new SlotCall(request)
  dispatcherOf(checker).add(call)
  await call.placed
}
