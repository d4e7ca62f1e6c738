// What a workshop and its process that runs the tests say to each other.
import type { Entered } from './entered.ts'

/** To run tests, in this order, after these files have changed. */
export interface Ask {
  readonly changed: readonly string[]
  readonly tests: readonly string[]
  /** A worker that gives no sign of life for so long is ended. */
  readonly stallMs: number
}

export interface Failed {
  readonly test: string
  /** What failed. */
  readonly name: string
  readonly isTimeout: boolean
}

/** How the tests ended: the first that fails is the last. */
export interface Told {
  readonly failed?: Failed
  readonly ended: readonly string[]
}

/** What a file of tests has entered, and how long it took. */
export interface Covered {
  readonly test: string
  readonly entered: readonly Entered[]
  readonly ms: number
}

/** What tests there are, once; then which test starts and what it has entered; and at the end how it went. */
export interface Message {
  readonly tests?: readonly string[]
  readonly started?: string
  /** If the process was started to find out. */
  readonly covered?: Covered
  readonly told?: Told
}
