import { telling } from '../database/connection.ts'
import { retrying, untilDone } from '../database/retry.ts'
import type { RatelimitError } from '../errors.ts'
import { applies } from '../store/answers.ts'
import { askOne } from '../store/ask.ts'
import { type Answers, type Asked, type Decision, kindOf, type Request, sameRequest } from '../store/call.ts'
import type { Store, Target } from '../store/store.ts'
import { Blame } from './blame.ts'
import { HalvingDecider, inLockOrder, type StatementGroups } from './halving-decider.ts'
import type { CallGroup, Decider, DeciderWork } from './queue.ts'
import type { Watch } from './waits.ts'

/** Decides calls outside of transactions: each statement is a transaction of its own. */
export class AloneDecider extends HalvingDecider<Request, Decision, KeyGroups> implements Decider {
  readonly sameRequest: typeof sameRequest = sameRequest
  readonly #alone: Target
  readonly #watch: Watch
  /** How far ahead the database's clock was when the guessed calendar period was last wrong. */
  #aheadMs = 0
  readonly #store: Store
  /** Whether the store knows what it has to know before the first statement. */
  #isLoaded: boolean

  constructor(target: Target, watch: Watch) {
    super()
    this.#alone = target
    this.#watch = watch
    this.#store = target.table.store
    this.#isLoaded = target.ensureTables === undefined
  }

  /** How to send a statement of the work: with the calendar period of the database's time, if that is known. */
  #target({ sending }: DeciderWork, periodMs?: number): Target {
    const { connection, table, namespace, commit, several } = this.#alone
    return {
      connection: telling(connection, sending),
      table,
      namespace,
      commit,
      several,
      periodMs: periodMs ?? (this.#aheadMs === 0 ? undefined : Date.now() + this.#aheadMs),
    }
  }

  async decideTogether(
    groups: readonly CallGroup[],
    done: (group: CallGroup) => void,
    work: DeciderWork,
  ): Promise<readonly CallGroup[]> {
    if (!this.#isLoaded) await this.#load()
    const sorted = groups.length > 1 ? inLockOrder(groups) : groups
    const purpose = sorted[0]?.request.purpose
    const decideBy = (does: KeyGroups['does'], asked: readonly CallGroup[]) =>
      this.decideParts(this.#onShards({ does, groups: asked }), done, work, new Blame(does === 'make'))
    if (purpose === 'look') return decideBy('look', sorted)
    const missing = await decideBy('take', sorted)
    return missing.length > 0 ? decideBy('make', inLockOrder(missing)) : missing
  }

  kindOf(request: Request): string {
    const shard = this.#store.shardOf(request.key)
    return shard === 0 ? kindOf(request) : `${shard} ${kindOf(request)}`
  }

  /** If this fails, the first statement fails with the same error. */
  async #load(): Promise<void> {
    try {
      await this.#alone.ensureTables?.()
      this.#isLoaded = true
    } catch {}
  }

  protected async askAlone(group: CallGroup, work: DeciderWork): Promise<Decision> {
    await this.#alone.ensureTables?.()
    const decided = () => retrying(() => decideOne(this.#target(work), group))
    return this.#watch(decided)
  }

  #onShards(part: KeyGroups): KeyGroups[] {
    const split = this.#store.split(part.groups, ({ request }) => request.key)
    return split.map((groups) => ({ ...part, groups }))
  }

  /** If a statement has failed because a shard was split meanwhile: the parts on one shard each. */
  protected override async split(error: RatelimitError, part: KeyGroups): Promise<KeyGroups[] | undefined> {
    if (part.groups.length < 2 || !this.#store.forget(error)) return undefined
    await this.#alone.ensureTables?.().catch(() => {})
    const parts = this.#onShards(part)
    return parts.length > 1 ? parts : undefined
  }

  protected async ask({ does, groups, periodMs }: KeyGroups, work: DeciderWork): Promise<Answers> {
    // An `await` takes time even without a promise.
    if (this.#alone.ensureTables) await this.#alone.ensureTables()
    const target = this.#target(work, periodMs)
    const store = this.#store
    const answers = () => (does === 'make' ? store.make(target, groups, false) : store[does](target, groups))
    return await this.#watch(() => retrying(answers))
  }

  protected override isRight(group: CallGroup, decision: Decision): boolean {
    return applies(group, decision)
  }

  /** The groups that were sent with the wrong calendar period, with the right one. */
  protected override again(
    part: KeyGroups,
    groups: readonly CallGroup[],
    { now: periodMs }: Decision,
  ): KeyGroups | undefined {
    if (part.periodMs !== undefined) return undefined
    if (!this.#alone.namespace.clock) this.#aheadMs = periodMs - Date.now()
    return { ...part, groups, periodMs }
  }
}

interface KeyGroups extends StatementGroups<Request, Decision> {
  readonly does: 'look' | 'take' | 'make'
  /** A time in the calendar period, if the database has returned one. */
  readonly periodMs?: number | undefined
}

/** Decides one request. If another transaction holds its row, it waits. */
export function decideOne(target: Target, one: Asked): Promise<Decision> {
  let asks = target
  return untilDone('inserted and removed the row of a new key, or took from its grants', async () => {
    const decision = await askForOne(asks, one)
    if (!decision || applies(one, decision)) return decision
    asks = { ...target, periodMs: decision.now }
    return undefined
  })
}

async function askForOne(target: Target, one: Asked): Promise<Decision | undefined> {
  const store = target.table.store
  if (one.request.purpose === 'look') return (await store.look(target, [one]))[0]
  const [taken] = await askOne(target, one, true)
  return taken ?? (await store.make(target, [one], true))[0]
}
