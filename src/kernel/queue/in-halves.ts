import { isWithdrawal, newSending } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { RatelimitError } from '../errors.ts'
import { compareText } from '../sql/calls.ts'
import { afterWait, causeOf } from './blame.ts'
import type { CallGroup, DeciderWork, Pending, Queued } from './queue.ts'

/** A statement for groups, which may fail because of one of their keys. */
interface GroupStatement<R extends Queued, D> {
  /** Asks for the groups, and waits for no row. The answer to a group that it leaves undecided is undefined. */
  ask(groups: readonly CallGroup<R, D>[]): Promise<readonly (D | undefined)[]>
  /** Whether it soon gives up on a row that another transaction is inserting. */
  readonly waitsBriefly: boolean
  /** The parts to send again if none of the keys is the cause of the error. */
  split?(
    error: RatelimitError,
    groups: readonly CallGroup<R, D>[],
  ): Promise<readonly (readonly CallGroup<R, D>[])[] | undefined>
}

/**
 * How many more statements of a batch may run into a timeout than succeed. After that, the rest of the batch
 * fails without being sent.
 *
 * Each timeout takes long. With one slow key, one half of each size is slow and the other is fast, so the two
 * numbers stay close, and the search goes on until it finds the key. It even finds two slow keys. If the
 * database is slow for all keys, only five statements are sent.
 */
const MAX_SLOW = 4

/**
 * Decides each part by one statement, and returns the groups that it left undecided.
 *
 * If a single key may be the cause of an error, the statement runs again in halves, so that the other keys do
 * not fail. All halves of one size run before the next smaller ones, so that a slow key delays only its own
 * half.
 */
export async function decideInHalves<R extends Queued, D>(
  parts: (readonly CallGroup<R, D>[])[],
  statement: GroupStatement<R, D>,
  done: (group: CallGroup<R, D>) => void,
  work: DeciderWork,
): Promise<readonly CallGroup<R, D>[]> {
  const undecided: CallGroup<R, D>[] = []
  let slow = 0
  /** The error of the rest, once the database has been slow for too many. */
  let failure: RatelimitError | undefined
  for (const part of parts) {
    const groups = stillAsked(part, done)
    if (groups.length === 0) continue
    let answers: readonly (D | undefined)[] | RatelimitError
    try {
      answers = failure ?? (await statement.ask(groups))
    } catch (reason) {
      answers = toRatelimitError(reason)
    }
    if (!(answers instanceof RatelimitError)) {
      if (slow > 0) slow--
      for (let i = 0; i < groups.length; i++) {
        const [group, answer] = [groups[i] as CallGroup<R, D>, answers[i]]
        if (answer === undefined) undecided.push(group)
        else {
          fulfil(group, answer)
          done(group)
        }
      }
    } else if (isWithdrawal(answers, work.sending)) {
      for (const each of parts) restart(each, work)
      parts.push(groups)
    } else {
      const apart = await statement.split?.(answers, groups)
      const cause = apart ? 'one' : causeOf(answers, statement.waitsBriefly)
      if (cause === 'slow' && ++slow > MAX_SLOW) failure ??= answers
      if (apart) parts.push(...apart)
      else if (cause !== 'all' && !failure && groups.length > 1) parts.push(...halvesOf(groups))
      else if (cause === 'held') undecided.push(...groups)
      else failAll(groups, answers, done)
    }
  }
  return undecided
}

/** Decides one group by a statement that may wait for its row. */
export async function decideByItself<R extends Queued, D>(
  group: CallGroup<R, D>,
  ask: () => Promise<D>,
  work: DeciderWork,
): Promise<void> {
  try {
    fulfil(group, await ask())
  } catch (reason) {
    const error = toRatelimitError(reason)
    if (isWithdrawal(error, work.sending)) {
      restart([group], work)
      if (group.calls.length > 0) return decideByItself(group, ask, work)
    }
    failAll([group], afterWait(error, true), () => {})
  }
}

/** If a call throws, only that call fails. Otherwise the error would leave the others without an answer. */
function fulfil<R extends Queued, D>({ calls }: CallGroup<R, D>, decision: D): void {
  for (let place = 0; place < calls.length; place++) {
    const call = calls[place] as Pending<R, D>
    try {
      call.fulfil(decision, place)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }
}

function failAll<R extends Queued, D>(
  groups: readonly CallGroup<R, D>[],
  error: RatelimitError,
  done: (group: CallGroup<R, D>) => void,
): void {
  for (const group of groups) {
    for (const call of group.calls) call.fail(error)
    done(group)
  }
}

/** Restarts work that was withdrawn, without the calls whose callers have given up. */
function restart<R extends Queued, D>(groups: readonly CallGroup<R, D>[], work: DeciderWork): void {
  work.sending = newSending()
  for (const { calls } of groups) calls.splice(0, calls.length, ...calls.filter(({ isOver }) => !isOver))
}

/** The groups that still have calls. Calls `done` for each other group. */
function stillAsked<R extends Queued, D>(
  groups: readonly CallGroup<R, D>[],
  done: (group: CallGroup<R, D>) => void,
): readonly CallGroup<R, D>[] {
  if (groups.every(({ calls }) => calls.length > 0)) return groups
  return groups.filter((group) => {
    if (group.calls.length === 0) done(group)
    return group.calls.length > 0
  })
}

/** Every statement locks rows in the order of their keys, so that two of them cannot deadlock. */
export function inLockOrder<Group extends { readonly request: Queued }>(groups: readonly Group[]): Group[] {
  return groups.toSorted((one, other) => compareText(one.request.key, other.request.key))
}

function halvesOf<Group>(groups: readonly Group[]): [Group[], Group[]] {
  const half = Math.ceil(groups.length / 2)
  return [groups.slice(0, half), groups.slice(half)]
}
