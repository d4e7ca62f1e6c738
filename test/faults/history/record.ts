import { createWriteStream, type WriteStream } from 'node:fs'
import { open } from 'node:fs/promises'
import { type LimitResult, RatelimitError } from '../../../src/index.ts'

/** The answer of a caller: `failed` says that nothing was charged, `unknown` that something may have been. */
export type Outcome = 'granted' | 'denied' | 'unknown' | 'failed'

/** What a call has taken, or has tried to take. A rate below 0 gives back. */
interface Charge {
  /** The place of the limit in the list. */
  readonly limit: number
  readonly key: number
  readonly rate: number
  /** Whether it has added credits to a balance, and has taken none. */
  readonly isCredit?: boolean
}

/** One call. */
export interface Recorded extends Charge {
  readonly outcome: Outcome
  /** Of an answer: how much of the limit is used after the call, and its `reset`. */
  readonly used: number
  readonly reset: number
}

/** Appends the calls of a process to a file, a line each. */
export class Recorder {
  readonly #file: WriteStream
  readonly counts: Record<Outcome, number> = { granted: 0, denied: 0, unknown: 0, failed: 0 }
  readonly errors: Record<string, number> = {}

  constructor(path: string) {
    this.#file = createWriteStream(path)
  }

  answer(charge: Charge, answer: Pick<LimitResult, 'success' | 'limit' | 'remaining' | 'reset'>): void {
    const used = answer.limit - answer.remaining
    this.#add({ ...charge, used, outcome: answer.success ? 'granted' : 'denied', reset: answer.reset })
  }

  /** Any error but `OUTCOME_UNKNOWN` promises that nothing was charged. */
  error(charge: Charge, error: unknown): void {
    this.note(error)
    const isKnown = error instanceof RatelimitError && error.code !== 'OUTCOME_UNKNOWN'
    if (isKnown) this.#add({ ...charge, outcome: 'failed', used: 0, reset: 0 })
    else this.unknown(charge)
  }

  /** Counts an error. */
  note(error: unknown): void {
    const name = error instanceof RatelimitError ? error.code : String(error)
    this.errors[name] = (this.errors[name] ?? 0) + 1
  }

  unknown(charge: Charge): void {
    this.#add({ ...charge, outcome: 'unknown', used: 0, reset: 0 })
  }

  close(): Promise<void> {
    return new Promise((resolve) => this.#file.end(resolve))
  }

  #add({ limit, key, isCredit = false, outcome, rate, used, reset }: Recorded): void {
    this.counts[outcome]++
    this.#file.write(`${limit} ${key} ${isCredit} ${outcome} ${rate} ${used} ${reset}\n`)
  }
}

/** The calls of a file. */
export async function* recordedIn(path: string): AsyncGenerator<Recorded> {
  const file = await open(path)
  for await (const line of file.readLines()) {
    const [limit, key, isCredit, outcome, rate, used, reset] = line.split(' ')
    yield {
      ...{
        limit: Number(limit),
        key: Number(key),
        isCredit: isCredit === 'true',
        outcome: outcome as Outcome,
      },
      ...{ rate: Number(rate), used: Number(used), reset: Number(reset) },
    }
  }
}
