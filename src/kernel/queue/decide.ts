import { telling } from '../database/connection.ts'
import { retrying, untilDone } from '../database/retry.ts'
import type { RatelimitError } from '../errors.ts'
import { applies } from '../store/answers.ts'
import { type Answers, type Asked, type Decision, kindOf, type Request, sameRequest } from '../store/call.ts'
import type { Asks, Store, Target } from '../store/store.ts'
import { decideByItself, decideInHalves, inLockOrder } from './in-halves.ts'
import type { CallGroup, Decider, DeciderWork } from './queue.ts'
import type { Watch } from './waits.ts'

/** Decides calls outside of transactions: each statement is a transaction of its own. */
export class AloneDecider implements Decider {
  readonly sameRequest: typeof sameRequest = sameRequest
  readonly #alone: Target
  readonly #watch: Watch
  /** How far ahead the database's clock was when the guessed calendar period was last wrong. */
  #aheadMs = 0
  readonly #store: Store
  readonly #asks: Asks
  /** Whether the store knows what it has to know before the first statement. */
  #isLoaded: boolean

  constructor(target: Target, watch: Watch) {
    this.#alone = target
    this.#watch = watch
    this.#store = target.table.store
    this.#asks = target.asks ?? this.#store
    this.#isLoaded = target.ensureTables === undefined
  }

  /** How to send a statement of the work: with the calendar period of the database's time, if that is known. */
  #target({ sending }: DeciderWork, periodMs?: number): Target {
    const { connection, table, namespace, commit, asks } = this.#alone
    return {
      connection: telling(connection, sending),
      table,
      namespace,
      commit,
      asks,
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
    const decideBy = (does: keyof Asks, asked: readonly CallGroup[]) =>
      this.#decideBy(does, asked, done, work)
    if (sorted[0]?.request.purpose === 'look') return decideBy('look', sorted)
    const missing = await decideBy('take', sorted)
    return missing.length > 0 ? decideBy('make', inLockOrder(missing)) : missing
  }

  decideAlone(group: CallGroup, work: DeciderWork): Promise<void> {
    const ask = async () => {
      await this.#alone.ensureTables?.()
      return this.#watch(() => retrying(() => decideOne(this.#target(work), group)))
    }
    return decideByItself(group, ask, work)
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

  /**
   * Decides the groups by statements that do one thing, and returns those that are left undecided.
   *
   * @param periodMs A time in the calendar period, if the database has returned one.
   */
  #decideBy(
    does: keyof Asks,
    groups: readonly CallGroup[],
    done: (group: CallGroup) => void,
    work: DeciderWork,
    periodMs?: number,
  ): Promise<readonly CallGroup[]> {
    const store = this.#store
    const { ensureTables, namespace } = this.#alone
    /** Those that were sent with the wrong calendar period, and a time in the right one. */
    const wrong: CallGroup[] = []
    let rightMs: number | undefined
    const ask = async (asked: readonly CallGroup[]): Promise<Answers> => {
      // An `await` takes time even without a promise.
      if (ensureTables) await ensureTables()
      const target = this.#target(work, periodMs)
      const answers = await this.#watch(() => retrying(() => this.#asks[does](target, asked, false)))
      if (!asked[0]?.request.limiter.periodAt) return answers
      return answers.map((answer, place) => {
        const group = asked[place] as CallGroup
        if (!answer || applies(group, answer)) return answer
        wrong.push(group)
        rightMs = answer.now
        return undefined
      })
    }
    /** If a statement has failed because a shard was split meanwhile. */
    const split = async (error: RatelimitError, asked: readonly CallGroup[]) => {
      if (asked.length < 2 || !store.forget(error)) return undefined
      await ensureTables?.().catch(() => {})
      const parts = this.#onShards(asked)
      return parts.length > 1 ? parts : undefined
    }
    const statement = { ask, split, waitsBriefly: does === 'make' }
    const deciding = decideInHalves(this.#onShards(groups), statement, done, work)
    // This runs for each check, and only some have periods.
    if (!groups[0]?.request.limiter.periodAt || periodMs !== undefined) return deciding
    return deciding.then(async (undecided) => {
      if (rightMs === undefined) return undecided
      if (!namespace.clock) this.#aheadMs = rightMs - Date.now()
      const sentRight = undecided.filter((group) => !wrong.includes(group))
      return [...sentRight, ...(await this.#decideBy(does, wrong, done, work, rightMs))]
    })
  }

  #onShards(groups: readonly CallGroup[]): (readonly CallGroup[])[] {
    return [...this.#store.split(groups, ({ request }) => request.key)]
  }
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
  const { asks = target.table.store } = target
  if (one.request.purpose === 'look') return (await asks.look(target, [one], true))[0]
  const [taken] = await asks.take(target, [one], true)
  return taken ?? (await asks.make(target, [one], true))[0]
}
