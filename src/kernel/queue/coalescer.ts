import { newSending, withdraw } from '../database/connection.ts'
import type { Decision, Request } from '../store/call.ts'
import { HeldQueues } from './held-queues.ts'
import { type Kind, Kinds, type UnderWay } from './kinds.ts'
import type { Alike, Batch, CallGroup, Decider, Dispatcher, KeyQueue, Pending, Queued } from './queue.ts'
import { atEndOfTurn, ConnectionSlots } from './slots.ts'
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
  readonly #slots: ConnectionSlots
  /** By their keys. Looks have queues of their own, because they never wait for a row. */
  readonly #looks = new Map<string, KeyQueue<R, D>>()
  readonly #others = new Map<string, KeyQueue<R, D>>()
  /** The queues that can be sent, by what can share a statement. There is no empty kind. */
  readonly #ready = new Kinds<Alike<R>, KeyQueue<R, D>>(
    (one, other) => one.shard === other.shard && this.#decider.canShare(one.request, other.request),
  )
  /** The batches that still have callers. */
  readonly #underWay = new Map<Batch<R, D>, UnderWay<Alike<R>>>()
  #held: HeldQueues<KeyQueue<R, D>> | undefined
  readonly #waiting: WaitingCalls
  /** Callers who were just answered ask again within so many microtasks, if they do little in between. */
  readonly #startSoon = atEndOfTurn(() => this.#start(), 8)

  /** @param waiting Counts its calls, and may count others that wait. They share the limit. */
  constructor(decider: Decider<R, D>, connections: number, waiting: WaitingCalls = { calls: 0 }) {
    this.#decider = decider
    this.#waiting = waiting
    this.#slots = new ConnectionSlots(connections, () => this.#start())
  }

  add(call: Pending<R, D>): void {
    const { request } = call
    const known = this.#queuesFor(request).get(request.key)
    const refusal = overload(known?.waiting ?? 0, this.#waiting.calls)
    if (refusal) {
      call.fail(refusal)
      return
    }
    this.#waiting.calls++
    const queue = known ?? this.#newQueue(request)
    queue.waiting++
    const last = queue.groups.at(-1)
    const isOpen = last !== undefined && !(queue.batch && queue.groups.length === 1)
    if (isOpen && this.#canJoin(last, call)) last.calls.push(call)
    else queue.groups.push({ request, calls: [call] })
    if (!known) this.#enqueue(queue, request)
    if (known || queue.isHeld) call.isContended = true
    this.#startSoon()
  }

  #canJoin({ request, calls: [first] }: CallGroup<R, D>, call: Pending<R, D>): boolean {
    if (first?.mayChange || call.mayChange) return false
    return this.#decider.sameRequest(request, call.request)
  }

  cancel(call: Pending<R, D>): boolean {
    call.isOver = true
    const queue = this.#queuesFor(call.request).get(call.request.key)
    const { batch } = call
    if (batch) {
      const isWithdrawn = withdraw(batch.sending)
      this.#giveUp(batch, 1)
      return !isWithdrawn
    }
    if (!queue) return true
    this.#waiting.calls--
    queue.waiting--
    queue.cancelled++
    // A search for each one would take too long if thousands are cancelled at once.
    if (queue.cancelled >= queue.waiting) removeCancelled(queue)
    if (queue.groups.length === 0) this.#remove(queue)
    return false
  }

  #queuesFor({ purpose }: Queued): Map<string, KeyQueue<R, D>> {
    return purpose === 'look' ? this.#looks : this.#others
  }

  #remove(queue: KeyQueue<R, D>): void {
    queue.siblings.delete(queue.key)
    this.#ready.remove(queue)
    if (this.#ready.isEmpty) this.#slots.stopWaiting()
    this.#held?.remove(queue)
  }

  #newQueue(request: R): KeyQueue<R, D> {
    const queue: KeyQueue<R, D> = {
      key: request.key,
      siblings: this.#queuesFor(request),
      groups: [],
      waiting: 0,
      cancelled: 0,
      batch: undefined,
      shard: this.#decider.shardOf?.(request.key) ?? 0,
      isHeld: false,
      ready: undefined,
    }
    queue.siblings.set(queue.key, queue)
    return queue
  }

  #enqueue(queue: KeyQueue<R, D>, { purpose }: R): void {
    if (purpose !== 'look' && this.#held?.addIfHeldLately(queue)) return
    this.#addReady(queue)
  }

  #addReady(queue: KeyQueue<R, D>): void {
    const like = alikeIn(queue)
    if (like) this.#ready.add(queue, like)
  }

  #start(): void {
    for (;;) {
      const kind = this.#ready.next(this.#underWay.values())
      if (!kind || !this.#slots.hasRoom()) break
      const most = this.#ready.shareOf(kind, this.#underWay.values(), this.#slots.free)
      const queues = this.#take(kind, Math.min(most, MAX_BATCH_KEYS))
      this.#ready.wasSent(kind)
      if (queues.length > 0) this.#decide(queues, kind.like)
    }
    this.#held?.start()
  }

  #take({ like, items }: Kind<Alike<R>, KeyQueue<R, D>>, most: number): KeyQueue<R, D>[] {
    const taken: KeyQueue<R, D>[] = []
    const others: KeyQueue<R, D>[] = []
    for (const queue of items) {
      if (taken.length === most) break
      removeCancelled(queue)
      this.#ready.remove(queue)
      const own = alikeIn(queue)
      if (!own) continue
      // If its first calls were cancelled, the next ones may ask for something else.
      if (this.#ready.areAlike(like, own)) taken.push(queue)
      else others.push(queue)
    }
    for (const queue of others) this.#addReady(queue)
    return taken
  }

  #decide(queues: readonly KeyQueue<R, D>[], like: Alike<R>): void {
    const batch = this.#send(queues, false)
    this.#slots.take(batch)
    this.#underWay.set(batch, { like, size: queues.length })
    const groups = queues.map(({ groups: [first] }) => first as CallGroup<R, D>)
    this.#decider
      .decideTogether(groups, (group) => this.#done(batch, group), batch)
      .then((held) => {
        this.#slots.leave(batch)
        this.#underWay.delete(batch)
        for (const group of held) {
          for (const call of group.calls) call.hold()
          this.#hold(batch, group)
        }
        this.#startSoon()
      })
  }

  #send(queues: readonly KeyQueue<R, D>[], mayWait: boolean): Batch<R, D> {
    const batch: Batch<R, D> = { queues, mayWait, waiting: 0, sending: newSending() }
    for (const queue of queues) {
      const calls = queue.groups[0]?.calls ?? []
      for (const call of calls) call.batch = batch
      queue.batch = batch
      queue.waiting -= calls.length
      batch.waiting += calls.length
    }
    this.#waiting.calls -= batch.waiting
    return batch
  }

  /** The queue of a group in the batch. Undefined if the queue has gone on without the batch. */
  #queueIn(batch: Batch<R, D>, { request }: CallGroup<R, D>): KeyQueue<R, D> | undefined {
    const queue = this.#queuesFor(request).get(request.key)
    return queue?.batch === batch ? queue : undefined
  }

  #hold(batch: Batch<R, D>, group: CallGroup<R, D>): void {
    const queue = this.#queueIn(batch, group)
    if (!queue) return
    const calls = group.calls.filter(({ isOver }) => !isOver)
    if (calls.length === 0) {
      this.#goOn(queue)
      return
    }
    for (const call of calls) call.batch = undefined
    queue.groups[0] = { request: group.request, calls }
    queue.waiting += calls.length
    this.#waiting.calls += calls.length
    queue.batch = undefined
    this.#held ??= new HeldQueues(
      (each) => this.#decideAlone(each),
      (waiting) => {
        for (const each of waiting) {
          each.isHeld = false
          this.#addReady(each)
        }
        this.#start()
      },
    )
    this.#held.add(queue)
  }

  async #decideAlone(queue: KeyQueue<R, D>): Promise<void> {
    removeCancelled(queue)
    const batch = this.#send([queue], true)
    const group = queue.groups[0] as CallGroup<R, D>
    await this.#decider.decideAlone(group, batch)
    this.#done(batch, group)
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
    this.#slots.abandon(batch)
    this.#underWay.delete(batch)
    for (const queue of stuck) this.#goOn(queue)
    this.#startSoon()
  }

  #goOn(queue: KeyQueue<R, D>): void {
    queue.groups.shift()
    queue.batch = undefined
    queue.isHeld = false
    const [next] = queue.groups
    if (next) this.#enqueue(queue, next.request)
    else queue.siblings.delete(queue.key)
  }
}

/** Undefined if the queue has no calls. */
function alikeIn<R extends Queued, D>({ groups: [first], shard }: KeyQueue<R, D>): Alike<R> | undefined {
  return first && { request: first.request, shard }
}

/** Removes the cancelled calls from the groups that were not sent. */
function removeCancelled<R extends Queued, D>(queue: KeyQueue<R, D>): void {
  if (queue.cancelled === 0) return
  const sent = queue.batch ? 1 : 0
  const groups = queue.groups.splice(sent).flatMap(({ request, calls }) => {
    const waiting = calls.filter(({ isOver }) => !isOver)
    return waiting.length > 0 ? [{ request, calls: waiting }] : []
  })
  for (const group of groups) queue.groups.push(group)
  queue.cancelled = 0
}

/** How many calls of the group still have callers. This runs for each key of each batch. */
function wantedIn({ calls }: { readonly calls: readonly { readonly isOver: boolean }[] }): number {
  let wanted = 0
  for (const { isOver } of calls) if (!isOver) wanted++
  return wanted
}
