import { newSending, withdraw } from '../database/connection.ts'
import type { Decision, Request } from '../store/call.ts'
import { holdIfWanted } from './blame.ts'
import { HeldQueues } from './held-queues.ts'
import {
  type Batch,
  type CallGroup,
  type Decider,
  type Dispatcher,
  KeyQueue,
  type Pending,
  type Queued,
} from './queue.ts'
import { type Kind, SharedStatements } from './shared-statements.ts'
import { atEndOfTurn } from './slots.ts'
import { overload, type WaitingCalls } from './waits.ts'

/** The most keys in one statement: enough for any burst, and few enough that it stays short. */
const MAX_BATCH_KEYS = 500

/**
 * Lets calls that arrive while checks are under way share the next statement.
 *
 * There is no timer. A call that finds a free slot is sent at the end of this turn of the event loop, together
 * with the other calls of the turn. The calls of a key are decided in their order. Statements can overtake each
 * other, so a key is in one batch at a time. If all callers of a batch have given up, its keys go on without
 * it.
 */
export class Coalescer<R extends Queued = Request, D = Decision> implements Dispatcher<R, D> {
  readonly #decider: Decider<R, D>
  /** By their keys. Looks have queues of their own, because they never wait for a row. */
  readonly #looks = new Map<string, KeyQueue<R, D>>()
  readonly #others = new Map<string, KeyQueue<R, D>>()
  readonly #shared: SharedStatements<KeyQueue<R, D>>
  #held: HeldQueues<KeyQueue<R, D>> | undefined
  readonly #waiting: WaitingCalls
  /** Callers who were just answered ask again within so many microtasks, if they do little in between. */
  readonly #startSoon = atEndOfTurn(() => this.#start(), 8)

  /** @param waiting Counts its calls, and may count others that wait. They share the limit. */
  constructor(decider: Decider<R, D>, connections: number, waiting: WaitingCalls = { calls: 0 }) {
    this.#decider = decider
    this.#waiting = waiting
    this.#shared = new SharedStatements(connections, (kind, most) =>
      this.#sendTogether(kind, Math.min(most, MAX_BATCH_KEYS)),
    )
  }

  add(call: Pending<R, D>): void {
    const { key } = call.request
    const siblings = this.#queuesFor(call.request)
    const known = siblings.get(key)
    const refusal = overload(known?.waiting ?? 0, this.#waiting.calls)
    if (refusal) {
      call.fail(refusal)
      return
    }
    const queue = known ?? new KeyQueue<R, D>(key, siblings, this.#decider)
    queue.add(call)
    this.#count(queue, 1)
    if (!known) this.#enqueue(queue)
    if (known || queue.isHeld) call.isContended = true
    this.#startSoon()
  }

  /** Counts more or fewer calls that wait. */
  #count(queue: KeyQueue<R, D>, more: number): void {
    queue.waiting += more
    this.#waiting.calls += more
  }

  cancel(call: Pending<R, D>): boolean {
    call.isOver = true
    const { batch, request } = call
    if (batch) {
      const isWithdrawn = withdraw(batch.sending)
      this.#giveUp(batch, 1)
      return !isWithdrawn
    }
    const queue = this.#queuesFor(request).get(request.key)
    if (!queue) return true
    this.#count(queue, -1)
    queue.cancelled++
    // A search for each one would take too long if thousands are cancelled at once.
    if (queue.cancelled >= queue.waiting) queue.removeCancelled()
    if (queue.groups.length > 0) return false
    queue.siblings.delete(queue.key)
    this.#shared.remove(queue)
    this.#held?.remove(queue)
    return false
  }

  #queuesFor({ purpose }: Queued): Map<string, KeyQueue<R, D>> {
    return purpose === 'look' ? this.#looks : this.#others
  }

  #enqueue(queue: KeyQueue<R, D>): void {
    if (queue.siblings === this.#looks || !this.#held?.addIfHeldLately(queue)) this.#shared.add(queue)
  }

  #start(): void {
    this.#shared.start()
    this.#held?.start()
  }

  #sendTogether(kind: Kind<KeyQueue<R, D>>, most: number): void {
    const queues = this.#take(kind, most)
    if (queues.length === 0) return
    const batch = this.#send(queues, false)
    this.#shared.begin(batch, kind.name, queues.length)
    const groups = queues.map(({ first }) => first)
    this.#decider
      .decideTogether(groups, (group) => this.#done(batch, group), batch)
      .then((held) => {
        this.#shared.leave(batch)
        for (const group of held) this.#hold(batch, group)
        this.#startSoon()
      })
  }

  #take({ name, items }: Kind<KeyQueue<R, D>>, most: number): KeyQueue<R, D>[] {
    const taken: KeyQueue<R, D>[] = []
    for (const queue of items) {
      if (taken.length === most) break
      queue.removeCancelled()
      this.#shared.remove(queue)
      // If its first calls were cancelled, the next ones may ask for something else.
      if (queue.kind === name) taken.push(queue)
      else this.#shared.add(queue)
    }
    return taken
  }

  #send(queues: readonly KeyQueue<R, D>[], mayWait: boolean): Batch<R, D> {
    const batch: Batch<R, D> = { queues, mayWait, waiting: 0, sending: newSending() }
    for (const queue of queues) {
      const { calls } = queue.first
      for (const call of calls) call.batch = batch
      queue.batch = batch
      this.#count(queue, -calls.length)
      batch.waiting += calls.length
    }
    return batch
  }

  /** The queue of a group in the batch. Undefined if the queue has gone on without the batch. */
  #queueIn(batch: Batch<R, D>, { request }: CallGroup<R, D>): KeyQueue<R, D> | undefined {
    const queue = this.#queuesFor(request).get(request.key)
    return queue?.batch === batch ? queue : undefined
  }

  #hold(batch: Batch<R, D>, group: CallGroup<R, D>): void {
    const calls = group.calls.filter(holdIfWanted)
    const queue = this.#queueIn(batch, group)
    if (!queue) return
    if (calls.length === 0) {
      this.#goOn(queue)
      return
    }
    for (const call of calls) call.batch = undefined
    queue.groups[0] = { request: group.request, calls }
    this.#count(queue, calls.length)
    queue.batch = undefined
    this.#held ??= new HeldQueues(
      (each) => this.#decideAlone(each),
      (waiting) => {
        for (const each of waiting) this.#shared.add(each)
        this.#start()
      },
    )
    this.#held.add(queue)
  }

  async #decideAlone(queue: KeyQueue<R, D>): Promise<void> {
    queue.removeCancelled()
    const { first } = queue
    const batch = this.#send([queue], true)
    await this.#decider.decideAlone(first, batch)
    this.#done(batch, first)
  }

  #done(batch: Batch<R, D>, group: CallGroup<R, D>): void {
    const queue = this.#queueIn(batch, group)
    if (!queue) return
    this.#goOn(queue)
    this.#giveUp(batch, wantedIn(group))
    this.#startSoon()
  }

  /**
   * Subtracts `calls` that were answered or whose callers have given up. When none is left, the rest of the
   * batch's queues go on, because its statement may never end. If that statement still runs, the locks of the
   * database keep it apart from later ones.
   */
  #giveUp(batch: Batch<R, D>, calls: number): void {
    batch.waiting -= calls
    if (batch.waiting > 0) return
    const stuck = batch.queues.filter((queue) => queue.batch === batch)
    if (stuck.length === 0) return
    this.#shared.abandon(batch)
    for (const queue of stuck) this.#goOn(queue)
    this.#startSoon()
  }

  #goOn(queue: KeyQueue<R, D>): void {
    queue.groups.shift()
    queue.batch = undefined
    queue.isHeld = false
    if (queue.groups.length > 0) this.#enqueue(queue)
    else queue.siblings.delete(queue.key)
  }
}

/** How many calls of the group still have callers. This runs for each key of each batch. */
function wantedIn({ calls }: { readonly calls: readonly { readonly isOver: boolean }[] }): number {
  let wanted = 0
  for (const { isOver } of calls) if (!isOver) wanted++
  return wanted
}
