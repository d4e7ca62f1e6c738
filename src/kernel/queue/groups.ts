import { toRatelimitError } from '../database/database-error.ts'
import { newSending } from '../database/sending.ts'
import type { RatelimitError } from '../errors.ts'
import { compareText } from '../sql/calls.ts'
import type { CallGroup, DeciderWork, Pending, Queued } from './queue.ts'

/** If a call throws, only that call fails. Otherwise the error would leave the others without an answer. */
export function fulfil<R extends Queued, D>({ calls }: CallGroup<R, D>, decision: D): void {
  for (let place = 0; place < calls.length; place++) {
    const call = calls[place] as Pending<R, D>
    try {
      call.fulfil(decision, place)
    } catch (error) {
      call.fail(toRatelimitError(error))
    }
  }
}

/** Fails all calls, and then calls `done` for each group. */
export function failAll<R extends Queued, D>(
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
export function restart<R extends Queued, D>(groups: readonly CallGroup<R, D>[], work: DeciderWork): void {
  work.sending = newSending()
  for (const { calls } of groups) calls.splice(0, calls.length, ...calls.filter(({ isOver }) => !isOver))
}

/** The groups that still have calls. Calls `done` for each other group. */
export function stillAsked<R extends Queued, D>(
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

export function halvesOf<Group>(groups: readonly Group[]): [Group[], Group[]] {
  const half = Math.ceil(groups.length / 2)
  return [groups.slice(0, half), groups.slice(half)]
}
