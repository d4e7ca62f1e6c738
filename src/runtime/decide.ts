import { toRatelimitError } from '../database/database-error.ts'
import { retrying, tryAgain } from '../database/retry.ts'
import { RatelimitError } from '../errors.ts'
import { compareText } from '../statements/calls.ts'
import { afterWait } from './after-wait.ts'
import { type Answers, type Asked, type Asking, applies, askToLook, askToMake, askToTake } from './ask.ts'
import { Blame } from './blame.ts'
import type { Decider, Decision, Group, Pending } from './call.ts'
import { decideOne } from './decide-one.ts'
import { watchWait } from './long-waits.ts'

/** Decides calls outside of transactions: each statement is a transaction of its own. */
export class AloneDecider implements Decider {
  readonly #alone: Asking
  /** By how much the database's clock was ahead when a guess of the calendar period was wrong. */
  #aheadMs = 0
  readonly #prepare: (() => Promise<void>) | undefined

  /** @param prepare Waited for before the first statement. */
  constructor(asking: Asking, prepare: (() => Promise<void>) | undefined) {
    this.#alone = asking
    this.#prepare = prepare
  }

  /** Sends a statement with the calendar period of the database's time, as far as that is known. */
  #asking(): Asking {
    return this.#aheadMs === 0 ? this.#alone : { ...this.#alone, periodMs: Date.now() + this.#aheadMs }
  }

  async decideTogether(groups: readonly Group[], done: (group: Group) => void): Promise<readonly Group[]> {
    const sorted = groups.length > 1 ? inLockOrder(groups) : groups
    const purpose = sorted[0]?.request.purpose
    if (purpose === 'look') return this.#decideBy(askToLook, sorted, done)
    const missing = await this.#decideBy(askToTake, sorted, done)
    return missing.length > 0 ? this.#decideBy(askToMakeAtOnce, inLockOrder(missing), done) : missing
  }

  async decideAlone(group: Group): Promise<void> {
    try {
      await this.#prepare?.()
      fulfil(group, await watchWait(() => retrying(() => decideOne(this.#asking(), group))))
    } catch (error) {
      failAll([group], afterWait(toRatelimitError(error)), () => {})
    }
  }

  #learn({ now }: Decision): void {
    if (!this.#alone.namespace.clock) this.#aheadMs = now - Date.now()
  }

  /**
   * Fulfils the groups by one statement. Returns those that it did not decide.
   *
   * One key's fault does not fail the others: if one key can be the cause, the statement is run again in
   * halves. It goes level by level: a key that holds up its half leaves the other half fast.
   */
  async #decideBy(
    ask: typeof askToTake,
    all: readonly Group[],
    done: (group: Group) => void,
  ): Promise<readonly Group[]> {
    const undecided: Group[] = []
    const parts: Part[] = [{ groups: all }]
    let blame: Blame | undefined
    for (const part of parts) {
      const answers = blame?.forAll ?? (await this.#answersTo(ask, part))
      if (answers instanceof RatelimitError) {
        blame ??= new Blame(ask === askToMakeAtOnce)
        const cause = blame.of(answers)
        if (cause !== 'all' && part.groups.length > 1) parts.push(...halvesOf(part))
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

  /** The answers of one statement, or the error that it failed with. */
  async #answersTo(ask: typeof askToTake, { groups, periodMs }: Part): Promise<Answers | RatelimitError> {
    try {
      await this.#prepare?.()
      const asking = periodMs === undefined ? this.#asking() : { ...this.#alone, periodMs }
      const answers = () => ask(asking, groups)
      return await watchWait(() => answers().catch((error) => tryAgain(error, answers)))
    } catch (error) {
      return toRatelimitError(error)
    }
  }

  /** Returns what was sent with the wrong calendar period, to be sent once more with the right one. */
  #fulfilAll(
    { groups, periodMs }: Part,
    answers: Answers,
    done: (group: Group) => void,
    undecided: Group[],
  ): Part | undefined {
    const again: Group[] = []
    let rightMs = 0
    for (let i = 0; i < groups.length; i++) {
      const [group, decision] = [groups[i] as Group, answers[i]]
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
  readonly groups: readonly Group[]
  /** The time in the calendar period to ask for, if it is known better than by the clocks. */
  readonly periodMs?: number | undefined
}

function halvesOf({ groups, periodMs }: Part): Part[] {
  const half = Math.ceil(groups.length / 2)
  return [groups.slice(0, half), groups.slice(half)].map((part) => ({ groups: part, periodMs }))
}

/** A call that cannot take its decision fails alone. If its error went on, the others would wait for ever. */
function fulfil({ calls }: Group, decision: Decision): void {
  for (let place = 0; place < calls.length; place++) {
    const call = calls[place] as Pending
    try {
      call.fulfil(decision, place)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }
}

function failAll(groups: readonly Group[], error: RatelimitError, done: (group: Group) => void): void {
  for (const group of groups) {
    for (const call of group.calls) call.fail(error)
    done(group)
  }
}

function askToMakeAtOnce(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  return askToMake(asking, asked, false)
}

function inLockOrder(groups: readonly Group[]): Group[] {
  return groups.toSorted((one, other) => compareText(one.request.key, other.request.key))
}
