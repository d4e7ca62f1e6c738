import { setTimeout as sleep } from 'node:timers/promises'
import type { Told } from './events.ts'
import { below, did, job, pool, recorder } from './kit.ts'
import { event, told } from './once.ts'
import type { Recorder } from './record.ts'
import { type Handed, receive, reserve, settle } from './reservations.ts'
import { joined, reserveTogether, spendFor, together } from './several.ts'
import { block, burst, grant, refund } from './single.ts'
import { clean, close, list, look, lookAtAll, reset } from './upkeep.ts'

/** What a process tells of its work. */
export interface Done {
  readonly calls: number
  readonly errors: Record<string, number>
  readonly counts: Recorder['counts']
  /** How often each action was begun. */
  readonly actions: Record<string, number>
  readonly resets: number
  readonly deleted: number
  readonly leaked: number
  readonly told: Told
}

/** What a process sends: a reservation for another one, or at the end what it did. */
export type Message = { readonly handed: Handed } | { readonly done: Done }

const CALLERS = 64

/** What callers do, and how often. */
const actions = [
  ...[...times(40, burst), ...times(14, refund), ...times(5, block), ...times(4, grant)],
  ...[...times(14, reserve), ...times(4, settle)],
  ...[
    ...times(10, together),
    ...times(5, reserveTogether),
    ...times(8, spendFor),
    ...times(10, joined),
    ...times(16, event),
  ],
  ...[...times(5, look), ...times(3, lookAtAll), ...times(2, list)],
  ...[...times(4, clean), ...times(2, close), ...times(20, reset)],
]
const begun: Record<string, number> = {}

function times(count: number, action: () => Promise<void>): (() => Promise<void>)[] {
  return Array<() => Promise<void>>(count).fill(action)
}

async function caller(): Promise<void> {
  while (did.calls < job.calls) {
    const action = actions[below(actions.length)] as () => Promise<void>
    begun[action.name] = (begun[action.name] ?? 0) + 1
    // Answers are written down after they came. Looks, resets and cleanups fail as others do.
    await action().catch((error) => recorder.note(error))
  }
}

process.on('message', receive)
await Promise.all(Array.from({ length: CALLERS }, caller))
await recorder.close()
// A sweep may still be under way.
for (let i = 0; i < 100 && pool.totalCount > pool.idleCount; i++) await sleep(50)
const leaked = pool.totalCount - pool.idleCount
const done: Done = { ...did, errors: recorder.errors, counts: recorder.counts, actions: begun, leaked, told }
const last: Message = { done }
process.send?.(last)
process.disconnect()
// A pool that has lost clients does not end by itself.
setTimeout(() => process.exit(), 1000).unref()
pool.end()
