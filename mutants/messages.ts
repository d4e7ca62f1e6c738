// What a workshop and its process that runs the tests say to each other.
import type { Executed } from './executed.ts'

/** To run tests, in this order, after these files have changed. */
export interface Ask {
  readonly changed: readonly string[]
  readonly tests: readonly string[]
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
  readonly ms: number
  /** If the process was started to find out. */
  readonly executed?: Executed
}

/** What tests there are, once; then which test starts, and at the end how it went. */
export interface Message {
  readonly tests?: readonly string[]
  readonly started?: string
  readonly told?: Told
}
