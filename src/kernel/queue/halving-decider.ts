import { isWithdrawal, newSending } from '../database/connection.ts'
import { toRatelimitError } from '../database/database-error.ts'
import { RatelimitError } from '../errors.ts'
import { compareText } from '../sql/calls.ts'
import { afterWait, type Blame } from './blame.ts'
import type { CallGroup, DeciderWork, Pending, Queued } from './queue.ts'

export interface StatementGroups<R extends Queued, D> {
  readonly groups: readonly CallGroup<R, D>[]
}

/** Decides groups by statements of which each may fail because of one of its keys. */
export abstract class HalvingDecider<R extends Queued, D, P extends StatementGroups<R, D>> {
  /** Asks by one statement, which waits for no row. */
  protected abstract ask(part: P, work: DeciderWork): Promise<readonly (D | undefined)[]>
  protected abstract askAlone(group: CallGroup<R, D>, work: DeciderWork): Promise<D>

  /** Whether the group was asked for in the right way. Default: yes. */
  protected isRight?(group: CallGroup<R, D>, answer: D): boolean

  /** Groups that were asked for in the wrong way, to be sent again. `last` is the answer to one of them. */
  protected again?(part: P, wrong: readonly CallGroup<R, D>[], last: D): P | undefined

  /** The parts to send again if none of the keys is the cause of the error. */
  protected split?(error: RatelimitError, part: P): Promise<readonly P[] | undefined>

  /**
   * Decides each part by one statement, and returns the groups that it left undecided.
   *
   * If a single key may be the cause of an error, the statement runs again in halves, so that the other keys do
   * not fail. All halves of one size run before the next smaller ones, so that a slow key delays only its own
   * half.
   */
  protected async decideParts(
    parts: P[],
    done: (group: CallGroup<R, D>) => void,
    work: DeciderWork,
    blame: Blame,
  ): Promise<readonly CallGroup<R, D>[]> {
    const undecided: CallGroup<R, D>[] = []
    for (const asked of parts) {
      const groups = stillAsked(asked.groups, done)
      if (groups.length === 0) continue
      const part = groups === asked.groups ? asked : { ...asked, groups }
      let answers: readonly (D | undefined)[] | RatelimitError
      try {
        answers = blame.forAll ?? (await this.ask(part, work))
      } catch (reason) {
        answers = toRatelimitError(reason)
      }
      if (!(answers instanceof RatelimitError)) {
        blame.succeeded()
        const wrong: CallGroup<R, D>[] = []
        let last: D | undefined
        for (let i = 0; i < groups.length; i++) {
          const [group, answer] = [groups[i] as CallGroup<R, D>, answers[i]]
          if (answer === undefined) undecided.push(group)
          else if (this.isRight?.(group, answer) ?? true) {
            fulfil(group, answer)
            done(group)
          } else {
            wrong.push(group)
            last = answer
          }
        }
        const again = last && this.again?.(part, wrong, last)
        if (again) parts.push(again)
        else undecided.push(...wrong)
      } else if (isWithdrawal(answers, work.sending)) {
        for (const each of parts) restart(each.groups, work)
        parts.push(part)
      } else {
        const apart = await this.split?.(answers, part)
        const cause = apart ? 'one' : blame.of(answers)
        if (apart) parts.push(...apart)
        else if (cause !== 'all' && groups.length > 1)
          parts.push(...halvesOf(groups).map((half) => ({ ...part, groups: half })))
        else if (cause === 'held') undecided.push(...groups)
        else failAll(groups, answers, done)
      }
    }
    return undecided
  }

  async decideAlone(group: CallGroup<R, D>, work: DeciderWork): Promise<void> {
    try {
      fulfil(group, await this.askAlone(group, work))
    } catch (reason) {
      const error = toRatelimitError(reason)
      if (isWithdrawal(error, work.sending)) {
        restart([group], work)
        if (group.calls.length > 0) return this.decideAlone(group, work)
      }
      failAll([group], afterWait(error, true), () => {})
    }
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
