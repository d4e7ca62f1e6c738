import { telling } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { retrying, tryAgain, untilDone } from '../database/retry.ts'
import { isWithdrawal } from '../database/sending.ts'
import { RatelimitError } from '../errors.ts'
import { applies, askOne } from './ask.ts'
import { afterWait, Blame } from './blame.ts'
import { type Answers, type Asked, canShare, type Decision, sameRequest } from './call.ts'
import { beginAnew, failAll, fulfil, halvesOf, inLockOrder, stillAsked } from './groups.ts'
import type { Watch } from './long-waits.ts'
import type { CallGroup, Decider, Work } from './queue.ts'
import type { Asking, Store } from './store.ts'

/** Decides calls outside of transactions: each statement is a transaction of its own. */
export class AloneDecider implements Decider {
  readonly canShare: typeof canShare = canShare
  readonly sameRequest: typeof sameRequest = sameRequest
  readonly #alone: Asking
  readonly #watch: Watch
  /** How far ahead the database's clock was when the guessed calendar period was last wrong. */
  #aheadMs = 0
  /** Loaded before the first statement. */
  #store: Store | undefined

  constructor(asking: Asking, watch: Watch) {
    this.#alone = asking
    this.#watch = watch
  }

  /** How to send a statement of the work: with the calendar period of the database's time, if that is known. */
  #asking({ sending }: Work, periodMs?: number): Asking {
    const { connection, table, namespace, commit, takeStatement } = this.#alone
    return {
      connection: telling(connection, sending),
      table,
      namespace,
      commit,
      takeStatement,
      periodMs: periodMs ?? (this.#aheadMs === 0 ? undefined : Date.now() + this.#aheadMs),
    }
  }

  async decideTogether(
    groups: readonly CallGroup[],
    done: (group: CallGroup) => void,
    work: Work,
  ): Promise<readonly CallGroup[]> {
    if (!this.#store) await this.#load()
    const sorted = groups.length > 1 ? inLockOrder(groups) : groups
    const purpose = sorted[0]?.request.purpose
    if (purpose === 'look') return this.#decideBy('look', sorted, done, work)
    const missing = await this.#decideBy('take', sorted, done, work)
    return missing.length > 0 ? this.#decideBy('make', inLockOrder(missing), done, work) : missing
  }

  shardOf(key: string): number {
    return this.#store?.shardOf(key) ?? 0
  }

  /** If this fails, the first statement fails with the same error. */
  async #load(): Promise<void> {
    try {
      await this.#alone.ensureTables?.()
      this.#store = await this.#alone.table.store()
    } catch {}
  }

  async decideAlone(group: CallGroup, work: Work): Promise<void> {
    try {
      await this.#alone.ensureTables?.()
      const decided = () => retrying(() => decideOne(this.#asking(work), group))
      fulfil(group, await this.#watch(decided))
    } catch (reason) {
      const error = toRatelimitError(reason)
      if (isWithdrawal(error, work.sending)) {
        beginAnew([group], work)
        if (group.calls.length > 0) return this.decideAlone(group, work)
      }
      failAll([group], afterWait(error, true), () => {})
    }
  }

  #learn({ now }: Decision): void {
    if (!this.#alone.namespace.clock) this.#aheadMs = now - Date.now()
  }

  /**
   * Decides the groups by one statement, and returns those that it left undecided.
   *
   * If a single key may be the cause of an error, the statement runs again in halves, so that the other keys do
   * not fail. All halves of one size run before the next smaller ones, so that a slow key delays only its own
   * half.
   */
  async #decideBy(
    does: Does,
    all: readonly CallGroup[],
    done: (group: CallGroup) => void,
    work: Work,
  ): Promise<readonly CallGroup[]> {
    const undecided: CallGroup[] = []
    const parts = this.#onShards({ groups: all })
    let blame: Blame | undefined
    for (const { groups: asked, periodMs } of parts) {
      const part = { groups: stillAsked(asked, done), periodMs }
      if (part.groups.length === 0) continue
      const answers = blame?.forAll ?? (await this.#answersTo(does, part, work))
      if (answers instanceof RatelimitError && isWithdrawal(answers, work.sending)) {
        beginAnew(all, work)
        parts.push(part)
      } else if (answers instanceof RatelimitError && (await this.#hasSplit(answers, part))) {
        parts.push(...this.#onShards(part))
      } else if (answers instanceof RatelimitError) {
        blame ??= new Blame(does === 'make')
        const cause = blame.of(answers)
        if (cause !== 'all' && part.groups.length > 1)
          parts.push(...halvesOf(part.groups).map((half) => ({ ...part, groups: half })))
        else if (cause === 'held') undecided.push(...part.groups)
        else failAll(part.groups, answers, done)
      } else {
        blame?.passed()
        const again = this.#fulfilAll(part, answers, done, undecided)
        if (again) parts.push(again)
      }
    }
    return undecided
  }

  /** The parts whose keys are on one shard each. */
  #onShards(part: Part): Part[] {
    const split = this.#store?.split(part.groups, ({ request }) => request.key)
    return split?.map((groups) => ({ ...part, groups })) ?? [part]
  }

  /** Whether a statement has failed because a shard was split meanwhile. */
  async #hasSplit(error: RatelimitError, part: Part): Promise<boolean> {
    if (part.groups.length < 2 || !this.#store?.forget(error)) return false
    await this.#alone.ensureTables?.().catch(() => {})
    return this.#onShards(part).length > 1
  }

  /** The answers of one statement, or the error that it failed with. */
  async #answersTo(does: Does, { groups, periodMs }: Part, work: Work): Promise<Answers | RatelimitError> {
    try {
      await this.#alone.ensureTables?.()
      const asking = this.#asking(work, periodMs)
      const store = this.#store ?? (await asking.table.store())
      const answers = () =>
        does === 'make' ? store.make(asking, groups, false) : store[does](asking, groups)
      const settled = () => answers().catch((error) => tryAgain(error, answers))
      return await this.#watch(settled)
    } catch (error) {
      return toRatelimitError(error)
    }
  }

  /** Returns the groups that were sent with the wrong calendar period, to be sent again with the right one. */
  #fulfilAll(
    { groups, periodMs }: Part,
    answers: Answers,
    done: (group: CallGroup) => void,
    undecided: CallGroup[],
  ): Part | undefined {
    const again: CallGroup[] = []
    let rightMs = 0
    for (let i = 0; i < groups.length; i++) {
      const [group, decision] = [groups[i] as CallGroup, answers[i]]
      if (decision && applies(group, decision)) {
        fulfil(group, decision)
        done(group)
      } else if (decision && periodMs === undefined) {
        this.#learn(decision)
        rightMs = decision.now
        again.push(group)
      } else undecided.push(group)
    }
    return again.length > 0 ? { groups: again, periodMs: rightMs } : undefined
  }
}

/** Groups for one statement. */
interface Part {
  readonly groups: readonly CallGroup[]
  /** A time in the calendar period, if the database has returned one. */
  readonly periodMs?: number | undefined
}

type Does = 'look' | 'take' | 'make'

/** Decides one request. If another transaction holds its row, it waits. */
export function decideOne(asking: Asking, one: Asked): Promise<Decision> {
  let asks = asking
  return untilDone('inserted and removed the row of a new key, or took from its grants', async () => {
    const decision = await askForOne(asks, one)
    if (!decision || applies(one, decision)) return decision
    asks = { ...asking, periodMs: decision.now }
    return undefined
  })
}

async function askForOne(asking: Asking, one: Asked): Promise<Decision | undefined> {
  const store = await asking.table.store()
  if (one.request.purpose === 'look') return (await store.look(asking, [one]))[0]
  const [taken] = await askOne(asking, one, true)
  return taken ?? (await store.make(asking, [one], true))[0]
}
