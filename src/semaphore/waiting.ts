import { whenAborted } from '../kernel/base/abort.ts'
import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { channels } from '../kernel/diagnostics.ts'
import { Timeout } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { wait } from '../shared/until-allowed.ts'
import type { Acquire } from './ask.ts'
import type { Line, WaitingCall } from './line.ts'
import { lineFor, newLine, type Sought } from './lines.ts'
import type { Look } from './look.ts'
import { endTurn, lookAtSlots } from './slots.ts'

/** A wanted lease. */
export interface Wanted extends Sought {
  readonly timeoutMs: number
  readonly signal: AbortSignal | undefined
  readonly tx: Database | undefined
}

/**
 * How long a call that does not wait looks again while others hold the rows, or a slot is kept for others. That
 * is no denial. It is longer than a slot is kept.
 */
const UNDECIDED_MS = 300

/** The longest pause between these looks. */
const MAX_LOOK_PAUSE_MS = 16

/** The pause between two looks in a caller's transaction. */
const JOINED_PAUSE_MS = 50

/** Looks for a slot until one is found or the time is over. The result is the slot, or the last denial. */
export async function slotInTime(
  checker: Checker,
  wanted: Wanted,
  joined: Connection | undefined,
): Promise<Look> {
  const { timeoutMs, signal } = wanted
  const endsAt = performance.now() + timeoutMs
  signal?.throwIfAborted()
  if (joined) return waitIn(joined, checker, wanted, endsAt)
  const line = lineFor(checker, wanted)
  if (timeoutMs === 0) return lookBehind(line, checker, wanted)
  if (line) return waitInLine(() => line, checker, wanted, endsAt)
  const found = await lookWithin(timeoutMs, checker, wanted, undefined)
  if (found.slot) return found
  const lineOf = () => lineFor(checker, wanted) ?? lineBehind(found, checker, wanted)
  return waitInLine(lineOf, checker, wanted, endsAt)
}

function soughtBy({ key, limit, leaseMs }: Wanted, since: number | undefined, waits: boolean): Acquire {
  return { purpose: 'acquire', key, limit, leaseMs, since, waits }
}

/** Looks for a call that does not wait. Those who wait look first. */
async function lookBehind(line: Line | undefined, checker: Checker, wanted: Wanted): Promise<Look> {
  line?.lookForAll()
  const found = await untilDecided(() => lookWithin(undefined, checker, wanted, line?.since), wanted.signal)
  if (!found.isLate) return found
  throw new RatelimitError(
    'TIMEOUT',
    'Each answer of the database came when its lease was over. Nothing is leased. Use a longer lease.',
  )
}

async function untilDecided(
  lookOnce: () => Promise<Look>,
  signal: AbortSignal | undefined,
  latest: number = Number.POSITIVE_INFINITY,
): Promise<Look> {
  let endsAt: number | undefined
  for (let most = 1; ; most = Math.min(most * 2, MAX_LOOK_PAUSE_MS)) {
    // A look that was sent before the end may have seen a slot that was kept, however late its answer comes.
    const isLast = endsAt !== undefined && performance.now() >= endsAt
    const found = await lookOnce()
    const now = performance.now()
    // The first answer may have been late.
    endsAt ??= Math.min(now + UNDECIDED_MS, latest)
    if (found.slot || found.open === 0 || isLast || now >= latest) return found
    await wait(Math.min(Math.random() * most, endsAt - now), signal)
  }
}

/** The result of a look. If the time is over first, the look leaves the queue. */
function lookWithin(
  timeoutMs: number | undefined,
  checker: Checker,
  wanted: Wanted,
  since: number | undefined,
): Promise<Look> {
  const { signal } = wanted
  const sought = soughtBy(wanted, since, timeoutMs !== undefined)
  const { time } = checker.alone.bounds ?? {}
  const isRest = timeoutMs !== undefined && timeoutMs < (time?.ms ?? Number.POSITIVE_INFINITY)
  const bounds = { time: isRest ? new Timeout(timeoutMs) : time, signal, isRest }
  return lookAtSlots(checker, sought, undefined, { bounds })
}

function lineBehind(denial: Look, checker: Checker, wanted: Wanted): Line {
  const { key, limit } = wanted
  return newLine(
    checker,
    wanted,
    {
      limit,
      lookFor: (since, caller) => lookAtSlots(checker, soughtBy(wanted, since, true), undefined, caller),
      onEmpty: (turn) => {
        if (turn !== undefined) endTurn(checker, key, limit, turn)
      },
    },
    denial,
  )
}

/** @param lineOf Called if there is room for one more call. A line that nobody has joined would never end. */
async function waitInLine(
  lineOf: () => Line,
  checker: Checker,
  wanted: Wanted,
  endsAt: number,
): Promise<Look> {
  const { key, signal } = wanted
  const timeoutMs = endsAt - performance.now()
  signal?.throwIfAborted()
  const leave = checker.room.enter(key)
  const line = lineOf()
  let stop = () => {}
  const found = new Promise<Look>((resolve, reject) => {
    const waiting: WaitingCall = { found: resolve, failed: reject }
    line.join(waiting)
    const giveUp = (end: () => void) => () => {
      line.leave(waiting)
      end()
    }
    const deadline = new Timeout(timeoutMs).begin({ over: giveUp(() => resolve(line.last)) })
    const stopSignal =
      signal &&
      whenAborted(
        signal,
        giveUp(() => reject(signal.reason)),
      )
    stop = () => {
      deadline.stop()
      stopSignal?.()
    }
  })
  const published = publishWait(checker, key)
  return found.finally(() => {
    stop()
    leave()
    published()
  })
}

/** Publishes that a call waits. Returns what publishes how long it has waited. Its timeout may be longer. */
function publishWait(checker: Checker, key: string): () => void {
  const since = performance.now()
  const publish = (waitMs: number) =>
    channels.wait?.publish({ prefix: checker.rows.namespace.prefix, key, waitMs })
  publish(0)
  return () => publish(performance.now() - since)
}

/** Looks again and again in the caller's transaction. Only the caller can end a statement in it. */
async function waitIn(joined: Connection, checker: Checker, wanted: Wanted, endsAt: number): Promise<Look> {
  const { signal, timeoutMs } = wanted
  const sought = soughtBy(wanted, undefined, false)
  const lookOnce = () => lookAtSlots(checker, sought, joined)
  const first = await untilDecided(lookOnce, signal, timeoutMs > 0 ? endsAt : undefined)
  if (first.slot || timeoutMs === 0) return first
  const published = publishWait(checker, wanted.key)
  try {
    let last = first
    while (!last.slot && performance.now() < endsAt) {
      await wait(Math.min(JOINED_PAUSE_MS, endsAt - performance.now()), signal)
      last = await lookOnce()
    }
    return last
  } finally {
    published()
  }
}
