import { createHistogram } from 'node:perf_hooks'
import { type CpuPerCheck, countCpu } from './cpu.ts'
import type { ServerCpu } from './server/server-cpu.ts'

/** What one contender did in one round. */
export interface Round extends CpuPerCheck {
  readonly checks: number
  readonly admitted: number
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
}

export interface Work {
  /** Checks a key once. Returns whether the check was admitted. */
  check(key: string): Promise<boolean>
  /** The key of the next check. */
  key(): string
  /** How many callers check. Each waits for its answer before it asks again. */
  readonly callers: number
  readonly ms: number
  /**
   * How many checks are timed as one. Use it for checks that take no longer than reading the clock. Default: 1.
   */
  readonly timedTogether?: number
  /** The CPU of the server that the checks go to, where it can be read. */
  readonly serverCpu?: ServerCpu | undefined
}

/** Lets the callers check for a time. It waits for every check that has begun and counts it. */
export async function measure(work: Work): Promise<Round> {
  const { check, key, callers, ms, timedTogether = 1 } = work
  const stopwatch = new Stopwatch()
  let checks = 0
  let admitted = 0
  const cpu = countCpu(work.serverCpu)
  const started = performance.now()
  const caller = async () => {
    while (performance.now() - started < ms) {
      const begun = performance.now()
      for (let i = 0; i < timedTogether; i++) {
        checks++
        if (await check(key())) admitted++
      }
      stopwatch.add((performance.now() - begun) / timedTogether)
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  const perSecond = (checks * 1000) / (performance.now() - started)
  return { checks, admitted, perSecond, ...stopwatch.percentiles(), ...cpu(checks) }
}

/** Collects times. They are nanoseconds in the histogram, because it takes whole numbers only. */
export class Stopwatch {
  readonly #histogram = createHistogram()

  add(ms: number): void {
    this.#histogram.record(Math.max(1, Math.round(ms * 1e6)))
  }

  percentiles(): { p50Ms: number; p99Ms: number } {
    return { p50Ms: this.#histogram.percentile(50) / 1e6, p99Ms: this.#histogram.percentile(99) / 1e6 }
  }
}

/** Any of `count` keys. All are equally likely. */
export function anyOf(count: number): () => string {
  return () => keyNumber(Math.floor(Math.random() * count))
}

export function keyNumber(number: number): string {
  return `user:${number}`
}

export function keyNumbers(count: number): string[] {
  return Array.from({ length: count }, (_, number) => keyNumber(number))
}

/** The round, if nothing was denied. A denial is less work, so it would distort the figure. */
export function allAdmitted(round: Round): Round {
  if (round.admitted < round.checks) throw new Error(`${round.checks - round.admitted} checks were denied.`)
  return round
}

/** The round, if everything was denied. */
export function allDenied(round: Round): Round {
  if (round.admitted > 0) throw new Error(`${round.admitted} checks were admitted.`)
  return round
}
