import { appliesAt } from '../algorithms/limiter.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { retrying, tryAgain } from '../database/retry.ts'
import { RatelimitError } from '../errors.ts'
import { compareText } from '../statements/calls.ts'
import { type Answers, type Asked, type Asking, askOne, askToLook, askToMake, askToTake } from './ask.ts'
import type { Decider, Decision, Group } from './call.ts'

/** Each attempt can lose the race for a new row. After so many losses something else is wrong. */
const MAX_ATTEMPTS = 50

/** Decides one request, and waits for its row where another transaction holds it. */
export async function decideOne(asking: Asking, one: Asked): Promise<Decision> {
  let asks = asking
  for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
    const decision = await askForOne(asks, one)
    if (decision && applies(one, decision)) return decision
    if (decision) asks = { ...asking, periodMs: decision.now }
  }
  throw new RatelimitError(
    'CONTENTION',
    `A new key was made and removed by others ${MAX_ATTEMPTS} times while it was checked; nothing was charged for it.`,
  )
}

/** Whether the decision was made with the parameters of its time. */
export function applies({ request }: Asked, { params, now }: Decision): boolean {
  return !request.limiter.periodAt || appliesAt(params, now)
}

async function askForOne(asking: Asking, one: Asked): Promise<Decision | undefined> {
  if (one.request.purpose === 'look') return (await askToLook(asking, [one]))[0]
  const [taken] = await askOne(asking, one, true)
  return taken ?? (await askToMake(asking, [one], true))[0]
}

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
      fulfil(group, await retrying(() => decideOne(this.#asking(), group)))
    } catch (error) {
      fail(group, toRatelimitError(error))
    }
  }

  #learn({ now }: Decision): void {
    if (!this.#alone.namespace.clock) this.#aheadMs = now - Date.now()
  }

  /**
   * Fulfils the groups by one statement. Returns those that it did not decide.
   *
   * One key's fault does not fail the others: if one key can be the cause, the statement is run again in
   * halves.
   */
  async #decideBy(
    ask: typeof askToTake,
    all: readonly Group[],
    done: (group: Group) => void,
  ): Promise<readonly Group[]> {
    const undecided: Group[] = []
    const parts: Part[] = [{ groups: all }]
    let slow = 0
    let everybodyIsSlow: RatelimitError | undefined
    // Level by level: a key that holds up its half leaves the other half fast.
    for (const { groups, periodMs } of parts) {
      const answers = everybodyIsSlow ?? (await this.#answersTo(ask, groups, periodMs))
      if (answers instanceof RatelimitError) {
        const isHeld = ask === askToMakeAtOnce && answers.sqlState === LOCK_NOT_AVAILABLE
        if (isTimeout(answers) && !isHeld && ++slow > MAX_SLOW) everybodyIsSlow = answers
        const isOfOne = isHeld || isOfOneValue(answers) || (isTimeout(answers) && !everybodyIsSlow)
        if (isOfOne && groups.length > 1) {
          const half = Math.ceil(groups.length / 2)
          parts.push({ groups: groups.slice(0, half), periodMs }, { groups: groups.slice(half), periodMs })
        } else if (isHeld) {
          undecided.push(...groups)
        } else {
          for (const group of groups) {
            fail(group, answers)
            done(group)
          }
        }
        continue
      }
      if (slow > 0) slow--
      // Sent with the wrong calendar period: once more with the right one.
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
      if (again.length > 0) parts.push({ groups: again, periodMs: rightMs })
    }
    return undecided
  }

  /** The answers of one statement, or the error that it failed with. */
  async #answersTo(
    ask: typeof askToTake,
    groups: readonly Group[],
    periodMs: number | undefined,
  ): Promise<Answers | RatelimitError> {
    try {
      await this.#prepare?.()
      const asking = periodMs === undefined ? this.#asking() : { ...this.#alone, periodMs }
      return await ask(asking, groups).catch((error) => tryAgain(error, () => ask(asking, groups)))
    } catch (error) {
      return toRatelimitError(error)
    }
  }
}

/** Groups for one statement. */
interface Part {
  readonly groups: readonly Group[]
  /** The time in the calendar period to ask for, if it is known better than by the clocks. */
  readonly periodMs?: number | undefined
}

function fulfil({ calls }: Group, decision: Decision): void {
  for (let place = 0; place < calls.length; place++) calls[place]?.fulfil(decision, place)
}

function fail({ calls }: Group, error: RatelimitError): void {
  for (const call of calls) call.fail(error)
}

function askToMakeAtOnce(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  return askToMake(asking, asked, false)
}

const LOCK_NOT_AVAILABLE = '55P03'
const QUERY_CANCELED = '57014'

/**
 * How many more statements of a batch may run into a timeout than not. After that, the rest of the batch
 * fails without being sent.
 *
 * Each of them takes as long as the timeout. One slow key makes one half of each level slow and leaves the
 * other fast, so the numbers stay close together, and even two such keys are found. A database that is slow
 * for everybody is asked five times, however many keys there are.
 */
const MAX_SLOW = 4

/** Whether a `lock_timeout` or `statement_timeout` ended the statement, or somebody cancelled it. */
function isTimeout({ sqlState }: RatelimitError): boolean {
  return sqlState === LOCK_NOT_AVAILABLE || sqlState === QUERY_CANCELED
}

/**
 * Whether one key can be the cause: a value that this database cannot store, such as one outside its
 * encoding.
 */
function isOfOneValue({ sqlState = '' }: RatelimitError): boolean {
  return sqlState.startsWith('22')
}

function inLockOrder(groups: readonly Group[]): Group[] {
  return groups.toSorted((one, other) => compareText(one.request.key, other.request.key))
}
