import type { Connection } from '../kernel/database/connection.ts'
import { mustHave } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import type { Statement, Value } from '../kernel/database/statement.ts'
import { timed } from '../kernel/diagnostics.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { numberArray, textArray } from '../kernel/sql/calls.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { commitOn, type OwnSource, ownStatement } from '../shared/own-rows.ts'
import { acquireStatement } from './sql/acquire.ts'
import { type LeaseAction, leaseStatement } from './sql/lease.ts'

/** Asks for a slot of a key. */
export interface Acquire {
  readonly purpose: 'acquire'
  readonly key: string
  readonly limit: number
  readonly leaseMs: number
  /** Since when it has waited, by the clock of the database. Undefined if it comes now. */
  readonly since: number | undefined
  /** Whether it goes on waiting if it finds none. A slot may then be kept for it. */
  readonly waits: boolean
}

/** A slot of a key, under a lease. */
export interface Slot {
  /** The key of its row. */
  readonly key: string
  readonly fence: number
}

/** Asks to end or extend the lease of a slot. */
export interface Change extends Slot {
  readonly purpose: LeaseAction
  readonly leaseMs: number
}

export type SlotRequest = Acquire | Change

/** The answer to equal requests. */
export interface SlotAnswer {
  /** The slots that were leased, or whose lease was ended or extended. */
  readonly slots: readonly Slot[]
  /** How many slots could have been leased, are held by others for a moment, or are kept for others. */
  readonly open: number
  /** Whether the next slot is kept for this request. */
  readonly isNext: boolean
  /** The time of the answer, by the clock of the database. */
  readonly at: number
  /** Milliseconds until the first lease ends. Undefined if there is none. */
  readonly endsInMs: number | undefined
  /** When the statement was sent, by the monotonic clock. */
  readonly sentAt: number
}

/** The answer if the row of the slot is gone. */
export const SLOT_GONE: SlotAnswer = {
  ...{ slots: [], open: 0, isNext: false, at: 0, endsInMs: undefined, sentAt: 0 },
}

/** A request and the number of calls that make it. */
interface AskedSlots {
  readonly request: SlotRequest
  readonly calls: { readonly length: number }
}

/** The answer to each request; undefined if the row of its slot could not be locked. */
export type SlotAnswers = readonly (SlotAnswer | undefined)[]

/** Names what requests have in common that one statement can decide. */
export function kindOf(request: SlotRequest): string {
  const { purpose, leaseMs } = request
  return isAcquire(request)
    ? `${purpose} ${leaseMs} ${request.limit} ${request.waits}`
    : `${purpose} ${leaseMs}`
}

/** Whether requests of one key can be decided together. A lease is changed by one call after the other. */
export function sameRequest(one: SlotRequest, other: SlotRequest): boolean {
  return isAcquire(one) && isAcquire(other) && kindOf(one) === kindOf(other) && one.since === other.since
}

function isAcquire(request: SlotRequest): request is Acquire {
  return request.purpose === 'acquire'
}

/** Rows expire on a grid of an hour or more, so that most updates leave the indexed column as it is (HOT). */
const MIN_SLOT_GRID_MS = 3_600_000

/** Sends requests that can share a statement. With `mayWait` it waits for rows that other transactions hold. */
export async function askForSlots(
  checker: Checker,
  connection: Connection,
  asked: readonly AskedSlots[],
  mayWait: boolean,
): Promise<SlotAnswers> {
  const { request } = mustHave(asked[0])
  const { purpose, leaseMs } = request
  const joined = connection.isTransaction
  const build = (source: OwnSource): Statement =>
    purpose === 'acquire'
      ? acquireStatement({ ...source, joined })
      : leaseStatement({ ...source, action: purpose, waits: mayWait })
  const name = `${purpose} ${purpose === 'acquire' ? joined : mayWait}`
  const values = {
    ...{ leaseMs, expiryGridMs: Math.max(MIN_SLOT_GRID_MS, leaseMs) },
    key: textArray(asked.map((each) => each.request.key)),
    ...(isAcquire(request) ? acquireValues(request, asked) : { fence: fencesOf(asked) }),
  }
  const send = ownStatement(checker, connection, name, build, values, commitOn(connection, checker))
  const sentAt = performance.now()
  const { prefix } = checker.rows.namespace
  const rows = await timed({ prefix, statement: 'lease', keys: asked.length }, send)
  return slotAnswersOf(rows, asked, sentAt)
}

function acquireValues({ limit, waits }: Acquire, asked: readonly AskedSlots[]): Record<string, Value> {
  const calls = numberArray(asked.map((each) => each.calls.length))
  const since = numberArray(asked.map(({ request }) => (isAcquire(request) ? (request.since ?? null) : null)))
  return { limit, waits: Number(waits), calls, since }
}

function fencesOf(asked: readonly AskedSlots[]): string {
  return numberArray(asked.map(({ request }) => (isAcquire(request) ? null : request.fence)))
}

function slotAnswersOf(rows: readonly Row[], asked: readonly AskedSlots[], sentAt: number): SlotAnswers {
  const answers: (SlotAnswer | undefined)[] = new Array(asked.length)
  for (const row of rows) {
    if (mustHave(row['place']) === null) continue
    const place = Number(row['place']) - 1
    const { request } = mustHave(asked[place])
    const slots = [...(answers[place]?.slots ?? []), ...slotIn(row, request)]
    const left = row['lasts']
    const endsInMs = left === null || left === undefined ? undefined : exactNumber(left)
    const at = row['at'] === undefined ? 0 : exactNumber(row['at'])
    const open = Number(row['open'] ?? 0)
    answers[place] = { slots, open, isNext: row['next'] === true, at, endsInMs, sentAt }
  }
  return answers
}

/** The slot that the row reports, if there is one. */
function slotIn(row: Row, request: SlotRequest): Slot[] {
  if (!isAcquire(request)) return mustHave(row['changed']) === true ? [request] : []
  const slot = mustHave(row['slot'])
  return slot === null ? [] : [{ key: String(slot), fence: exactNumber(row['fence']) }]
}
