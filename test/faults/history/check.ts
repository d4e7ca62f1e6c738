import { type Tested, WAITED_FOR } from './limits.ts'
import type { Recorded } from './record.ts'

/** What a row says. */
export interface Row {
  readonly used: number
  /** What was added to a balance. */
  readonly credited: number
}

/** The sums of a key's calls, or of the credits that were added to it. */
class Sums {
  granted = 0
  /** What unknown calls may have taken, and given back. */
  maybeTaken = 0
  maybeGivenBack = 0
  /** By a window's `reset`, what each grant took: its last unit, and how many. */
  readonly windows = new Map<number, { taken: number; grants: [number, number][] }>()
}

/** Adds up the answers of the callers, and compares them with the limits and with the rows. */
export class Checker {
  readonly #limits: readonly Tested[]
  readonly #keys = new Map<string, Sums>()
  readonly problems: string[] = []
  /** Units of calls with unknown outcome, and how many of them were taken after all. */
  unknown = 0
  unknownTaken = 0
  windows = 0

  constructor(limits: readonly Tested[]) {
    this.#limits = limits
  }

  add({ limit, key, isCredit, outcome, rate, used, reset }: Recorded): void {
    const sums = this.#sumsOf(limit, key, isCredit)
    if (outcome === 'granted') {
      sums.granted += rate
      if (this.#limits[limit]?.kind === 'counted') return
      const window = sums.windows.get(reset) ?? { taken: 0, grants: [] }
      sums.windows.set(reset, window)
      window.taken += rate
      window.grants.push([used, rate])
    } else if (outcome === 'unknown') {
      if (rate > 0) sums.maybeTaken += rate
      else sums.maybeGivenBack -= rate
    }
  }

  /** @param rows The rows of a limit, by key. */
  check(limit: number, rows: ReadonlyMap<string, Row>, elapsedMs: number): void {
    const tested = this.#limits[limit] as Tested
    for (let key = 0; key < tested.keys; key++) {
      const say = (problem: string) => this.problems.push(`${tested.prefix}, key ${key}: ${problem}`)
      const sums = this.#sumsOf(limit, key)
      const row = rows.get(`key ${key}`) ?? { used: 0, credited: 0 }
      if (tested.kind === 'counted') {
        this.#checkCount(tested, row, elapsedMs, say)
        this.#compare(sums, 'used', row.used, say)
        this.#compare(this.#sumsOf(limit, key, true), 'added', row.credited, say)
      } else if (tested.kind === 'windows' || key !== WAITED_FOR) this.#checkWindows(tested, sums, say)
      const most = tested.most + (tested.refillPerMs ?? 0) * elapsedMs
      if (tested.kind === 'rate' && sums.granted > most) say(`granted ${sums.granted}, at most ${most}`)
    }
  }

  #checkCount(
    { most, refillPerMs = 0 }: Tested,
    { used, credited }: Row,
    elapsedMs: number,
    say: (problem: string) => void,
  ): void {
    const refilled = refillPerMs * elapsedMs
    if (refilled > 0.5) say(`the test took too long: ${refilled} came back`)
    if (used > most + credited) say(`the row has ${used} used of ${most + credited}`)
  }

  #compare(
    { granted, maybeTaken, maybeGivenBack }: Sums,
    what: 'used' | 'added',
    inRow: number,
    say: (problem: string) => void,
  ): void {
    const [least, atMost] = [granted - maybeGivenBack, granted + maybeTaken]
    const units = Math.ceil(inRow - 1e-6)
    if (units < least || units > atMost) {
      say(`the row has ${inRow} ${what}, the callers know of ${least} to ${atMost}`)
    }
    this.unknown += maybeTaken + maybeGivenBack
    this.unknownTaken += units - granted + maybeGivenBack
  }

  #checkWindows({ kind, most }: Tested, { windows }: Sums, say: (problem: string) => void): void {
    this.windows += windows.size
    for (const [reset, { taken, grants }] of windows) {
      if (taken > most) say(`granted ${taken} of ${most} until ${reset}`)
      if (kind !== 'windows') continue
      let before = 0
      for (const [used, rate] of grants.sort(([one], [other]) => one - other)) {
        if (used - rate < before) say(`unit ${used - rate + 1} of ${most} was granted twice until ${reset}`)
        before = used
      }
    }
  }

  #sumsOf(limit: number, key: number, ofCredits = false): Sums {
    const name = `${limit} ${key} ${ofCredits}`
    const sums = this.#keys.get(name) ?? new Sums()
    this.#keys.set(name, sums)
    return sums
  }
}
