import type { Sending } from '../database/connection.ts'
import type { RatelimitError } from '../errors.ts'
import type { Decision, Request } from '../store/call.ts'
import type { CanBeReady } from './shared-statements.ts'

/** What the queues need to know of a request. */
export interface Queued {
  readonly key: string
  readonly purpose: string | object
}

export interface Pending<R extends Queued = Request, D = Decision> {
  readonly request: R
  /** Whether its request may change until it is sent. No other call is decided together with it. */
  readonly mayChange?: boolean
  /** Its caller has given up. */
  isOver: boolean
  batch: Batch<R, D> | undefined
  /** Whether it waited for its own key: for a row that others hold, or for other calls of the key. */
  isContended: boolean
  /** The database has answered that others hold the row. */
  hold(): void
  /** `place` is its position among the equal calls that were decided together. The first is 0. */
  fulfil(decision: D, place: number): void
  fail(error: RatelimitError): void
}

/** Equal calls of one key that follow each other. They are decided together. */
export interface CallGroup<R extends Queued = Request, D = Decision> {
  readonly request: R
  readonly calls: Pending<R, D>[]
}

/** The calls of one key, in order. Looks have a queue of their own, because they never wait for a row. */
export class KeyQueue<R extends Queued = Request, D = Decision> implements CanBeReady<KeyQueue<R, D>> {
  readonly key: string
  /** The queues that it is one of, by their keys. */
  readonly siblings: Map<string, KeyQueue<R, D>>
  readonly groups: CallGroup<R, D>[] = []
  /** How many of its calls are unsent and still wanted. */
  waiting = 0
  /** How many cancelled calls are still in its groups. */
  cancelled = 0
  /** The batch that its first group is in. */
  batch: Batch<R, D> | undefined = undefined
  /** Whether a statement found that others hold its row. */
  isHeld = false
  ready: CanBeReady<KeyQueue<R, D>>['ready'] = undefined
  readonly #decider: Decider<R, D>

  constructor(key: string, siblings: Map<string, KeyQueue<R, D>>, decider: Decider<R, D>) {
    this.key = key
    this.siblings = siblings
    this.#decider = decider
    siblings.set(key, this)
  }

  get kind(): string {
    return this.#decider.kindOf(this.first.request)
  }

  /** The calls to send next, or those in the batch. A queue without calls is removed. */
  get first(): CallGroup<R, D> {
    return this.groups[0] as CallGroup<R, D>
  }

  add(call: Pending<R, D>): void {
    const { groups } = this
    const last = groups.at(-1)
    const isSent = this.batch && groups.length === 1
    const canJoin = !isSent && !last?.calls[0]?.mayChange && !call.mayChange
    if (last && canJoin && this.#decider.sameRequest(last.request, call.request)) last.calls.push(call)
    else groups.push({ request: call.request, calls: [call] })
  }

  /** Removes the cancelled calls from the groups that were not sent. */
  removeCancelled(): void {
    if (this.cancelled === 0) return
    const groups = this.groups.splice(this.batch ? 1 : 0).flatMap(({ request, calls }) => {
      const waiting = calls.filter(({ isOver }) => !isOver)
      return waiting.length > 0 ? [{ request, calls: waiting }] : []
    })
    this.groups.push(...groups)
    this.cancelled = 0
  }
}

export interface DeciderWork {
  /** How far it has come. It is another one each time that the work restarts. */
  sending: Sending
}

/** The first groups of some queues, which were sent to the database together. */
export interface Batch<R extends Queued = Request, D = Decision> extends DeciderWork {
  readonly queues: readonly KeyQueue<R, D>[]
  /** Whether its statement may wait for a row that others hold. */
  readonly mayWait: boolean
  /** How many of its calls have no answer yet and are still wanted. */
  waiting: number
}

/** Decides groups of calls and fulfils or fails each of their calls. Its methods never reject. */
export interface Decider<R extends Queued = Request, D = Decision> {
  /**
   * Decides groups of different keys that can share a statement. It waits for no row, and returns the
   * groups whose rows others hold. It calls `done` for each other group as soon as its calls have their
   * answers. If a call is withdrawn, the others are decided without it.
   */
  decideTogether(
    groups: readonly CallGroup<R, D>[],
    done: (group: CallGroup<R, D>) => void,
    work: DeciderWork,
  ): Promise<readonly CallGroup<R, D>[]>
  /** Decides one group, and waits for its row. */
  decideAlone(group: CallGroup<R, D>, work: DeciderWork): Promise<void>
  /** Names what requests have in common that one statement can decide. */
  kindOf(request: R): string
  /** Whether two requests for one key are equal, so that they can be decided together. */
  sameRequest(one: R, other: R): boolean
}

export interface Dispatcher<R extends Queued = Request, D = Decision> {
  /** Sends the call to the decider. If too many calls wait, it fails the call. */
  add(call: Pending<R, D>): void
  /** Cancels a call. Returns whether it may have been sent already. */
  cancel(call: Pending<R, D>): boolean
}
