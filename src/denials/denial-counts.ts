import { newSending } from '../kernel/database/connection.ts'
import type { DecisionMessage } from '../kernel/diagnostics.ts'
import type { LayerParts } from '../kernel/engine/own-layer.ts'
import type { GoOn } from '../kernel/engine/sweeps.ts'
import { fixedWindowOf } from '../kernel/limits/fixed-window.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { AloneDecider } from '../kernel/queue/decide.ts'
import type { CallGroup, Pending } from '../kernel/queue/queue.ts'
import { MAX_SWEPT } from '../kernel/sql/remove.ts'
import { requestFor } from '../kernel/store/call.ts'
import type { Target } from '../kernel/store/store.ts'
import { Sweeper } from '../kernel/store/sweep.ts'
import { denialsKey, deniedPrefix, hourOf } from '../shared/denied-rows.ts'
import { mayHaveCharged } from '../shared/may-have-charged.ts'
import { timeOf } from '../shared/number-columns.ts'
import { MisraGries } from './misra-gries.ts'

/** The limiter of the rows. It never denies, and its rows expire a week after the first denial. */
const COUNTS_LIMITER = /* @__PURE__ */ fixedWindowOf(Number.POSITIVE_INFINITY, '7d')

/** After this time a write counts as lost: the end of its request may have cut it off. */
const LOST_MS = 10_000

/** Counts of a limiter that are not written yet. */
interface PendingCounts {
  readonly keys: ReadonlyMap<string, number>
  readonly total: number
}

/**
 * Counts the denials of a limiter in memory, and adds them to hourly rows in the background.
 *
 * A count is written at most once: if a write may have succeeded, its counts are dropped. Rows therefore never
 * count too many denials. Counts that were certainly not written are kept for the next write.
 */
export class DenialCounts implements Layer {
  readonly name: string = 'denials'
  readonly #rows: Target
  readonly #goOn: GoOn
  readonly #everyMs: number
  readonly #decider: AloneDecider
  readonly #keys: MisraGries
  #total = 0
  /**
   * When the next write is due, or when the present one counts as lost. Undefined if there is nothing to do.
   */
  #dueAt: number | undefined
  #writing: Promise<void> | undefined

  /**
   * @param everyMs The time between two writes of the counts.
   * @param top How many keys are counted at a time.
   */
  constructor({ rows, alone }: LayerParts, everyMs: number, top: number) {
    const { prefix, clock } = rows.namespace
    const namespace = { prefix: deniedPrefix(prefix), clock }
    this.#rows = { ...rows, namespace, several: undefined }
    this.#goOn = alone.goOn
    this.#everyMs = everyMs
    this.#keys = new MisraGries(top)
    this.#decider = new AloneDecider(this.#rows, alone.watch)
  }

  /** Counts a denial. It waits for nothing and never throws. */
  decided({ key, success, wouldDeny, degraded }: DecisionMessage): void {
    // If the database did not answer, no limit has denied.
    if (degraded || (success && !wouldDeny)) return
    this.#keys.add(key)
    this.#total++
    if (this.#dueAt === undefined) this.#writeLater()
    // The end of a request may have ended its timer, so a later request writes.
    else if (performance.now() >= this.#dueAt) this.#goOn(this.#write())
  }

  /** Writes what is counted, after the write that is under way. It never rejects. */
  async close(): Promise<void> {
    await this.#writing
    if (this.#keys.size > 0 || this.#total > 0) await this.#write()
  }

  #writeLater(): void {
    const dueAt = performance.now() + this.#everyMs
    this.#dueAt = dueAt
    const due = new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.#everyMs)
      // It does not keep the process alive. In some runtimes the timer is a number.
      timer.unref?.()
    })
    this.#goOn(due.then(() => (this.#dueAt === dueAt ? this.#write() : undefined)))
  }

  /** Writes everything that was counted. It never rejects: the next write tries again. */
  #write(): Promise<void> {
    this.#writing = this.#writeOnce()
    return this.#writing
  }

  async #writeOnce(): Promise<void> {
    this.#dueAt = performance.now() + Math.max(this.#everyMs, LOST_MS)
    const counted = { keys: this.#keys.takeAll(), total: this.#total }
    this.#total = 0
    try {
      const { namespace, connection } = this.#rows
      const now = await timeOf(connection.db, namespace.clock)
      await this.#add(counted, hourOf(now))
    } catch {
      // Only reading the time fails like this, before anything was written.
      for (const [key, times] of counted.keys) this.#keys.add(key, times)
      this.#total += counted.total
    }
    await this.#sweep().catch(() => {})
    this.#dueAt = undefined
    // A count that others held waits without a sum.
    if (this.#keys.size > 0 || this.#total > 0) this.#writeLater()
  }

  /** Adds the counts to the rows of the hour, in one statement. If others hold a row, its count waits. */
  async #add({ keys, total }: PendingCounts, hour: string): Promise<void> {
    const adding = [...keys].map(([key, times]) =>
      addition(denialsKey(hour, key), times, () => this.#keys.add(key, times)),
    )
    const addingAll = addition(denialsKey(hour), total, () => {
      this.#total += total
    })
    const groups = total > 0 ? [...adding, addingAll] : adding
    const held = await this.#decider.decideTogether(groups, () => {}, { sending: newSending() })
    for (const { calls } of held) calls[0]?.hold()
  }

  async #sweep(): Promise<void> {
    const sweeper = new Sweeper(this.#rows, false)
    const clock = this.#rows.namespace.clock?.() ?? null
    while ((await sweeper.sweep(clock)) === MAX_SWEPT) {}
  }
}

/** Adds to a row. `keep` is called if that was certainly not done. */
function addition(key: string, times: number, keep: () => void): CallGroup {
  const request = requestFor(key, COUNTS_LIMITER, 'take', times)
  const pending: Pending = {
    request,
    isOver: false,
    batch: undefined,
    isContended: false,
    hold: keep,
    fulfil: () => {},
    fail: (error) => {
      if (!mayHaveCharged(error)) keep()
    },
  }
  return { request, calls: [pending] }
}
