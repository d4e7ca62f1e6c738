import { newSending } from '../kernel/database/connection.ts'
import type { DecisionMessage } from '../kernel/diagnostics.ts'
import type { LayerParts } from '../kernel/engine/own-layer.ts'
import type { GoOn } from '../kernel/engine/sweeps.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { fixedWindowOf } from '../kernel/limits/fixed-window.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { AloneDecider } from '../kernel/queue/decide.ts'
import { MAX_SWEPT } from '../kernel/sql/remove.ts'
import type { Target } from '../kernel/store/store.ts'
import { Sweeper } from '../kernel/store/sweep.ts'
import { deniedPrefix, HOUR, MINUTE, type Span, spanName } from '../shared/denied-rows.ts'
import { timeOf } from '../shared/number-columns.ts'
import { Counts } from './counts.ts'

/** After this time a write counts as lost: the end of its request may have cut it off. */
const LOST_MS = 10_000

/**
 * Counts the denials of a limiter in memory, and adds them to rows of hours and minutes in the background.
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
  readonly #counts: Counts
  /** What is due to the rows of each kind. They may be held at different times. */
  readonly #due: readonly { readonly span: Span; readonly limiter: StoredLimiter; readonly counts: Counts }[]
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
    this.#rows = { ...rows, namespace }
    this.#goOn = alone.goOn
    this.#everyMs = everyMs
    this.#counts = new Counts(top)
    // The limiters never deny, and say how long after its first denial a row expires.
    this.#due = [HOUR, MINUTE].map((span) => {
      return { span, limiter: fixedWindowOf(Number.POSITIVE_INFINITY, span.keptMs), counts: new Counts(top) }
    })
    this.#decider = new AloneDecider(this.#rows, alone.watch)
  }

  /** Counts a denial. It waits for nothing and never throws. */
  decided({ key, success, wouldDeny, degraded }: DecisionMessage): void {
    // If the database did not answer, no limit has denied.
    if (degraded || (success && !wouldDeny)) return
    this.#counts.keys.add(key)
    this.#counts.total++
    if (this.#dueAt === undefined) this.#writeLater()
    // The end of a request may have ended its timer, so a later request writes.
    else if (performance.now() >= this.#dueAt) this.#goOn(this.#write())
  }

  /** Writes what is counted, after the write that is under way. It never rejects. */
  async close(): Promise<void> {
    await this.#writing
    if (this.#isPending()) await this.#write()
  }

  #isPending(): boolean {
    return [this.#counts, ...this.#due.map(({ counts }) => counts)].some(({ isEmpty }) => !isEmpty)
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
    const { namespace, connection } = this.#rows
    // Only reading the time fails like this, before anything was written.
    const now = await timeOf(connection.db, namespace.clock).catch(() => undefined)
    if (now !== undefined) await this.#add(now)
    await this.#sweep().catch(() => {})
    this.#dueAt = undefined
    // A count that others held waits without a sum.
    if (this.#isPending()) this.#writeLater()
  }

  /** Adds the counts to the rows of the time. If others hold a row, its count waits. */
  async #add(now: number): Promise<void> {
    this.#counts.moveTo(this.#due.map(({ counts }) => counts))
    // One statement has rows of one length.
    for (const { span, limiter, counts } of this.#due) {
      const groups = counts.takeAll(spanName(span, now), limiter)
      const held = await this.#decider.decideTogether(groups, () => {}, { sending: newSending() })
      for (const { calls } of held) calls[0]?.hold()
    }
  }

  async #sweep(): Promise<void> {
    const sweeper = new Sweeper(this.#rows, false)
    const clock = this.#rows.namespace.clock?.() ?? null
    while ((await sweeper.sweep(clock)) === MAX_SWEPT) {}
  }
}
