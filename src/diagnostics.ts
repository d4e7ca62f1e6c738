import type { RatelimitError } from './errors.ts'

// What the package tells those who watch it. Node's built-in module is asked for at run time, because other
// runtimes, and bundlers for them, do not have it.

/** On `drizzle-ratelimit:decision`: a call was answered. */
export interface DecisionMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** What the call asked for. Of `spend` what this limit gave, and after a denial the whole rate. */
  readonly rate: number
  /** Whether it was allowed. */
  readonly success: boolean
  /** The capacity. */
  readonly limit: number
  /** Whole units that could be taken after the call. */
  readonly remaining: number
  /** Milliseconds from now until the call would be allowed; 0 if it was. */
  readonly retryAfter: number
  /** Whether `onError` answered, because the database could not. */
  readonly degraded: boolean
  /** Whether `dryRun` let a call pass that the limit denies. */
  readonly wouldDeny: boolean
  /** Whether the call joined a transaction of the caller's. */
  readonly joined: boolean
  /** From the call to its answer. */
  readonly durationMs: number
}

/** On `drizzle-ratelimit:wait`: `blockUntilReady` begins to wait. */
export interface WaitMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** How long it waits before it checks again. */
  readonly waitMs: number
}

/** On `drizzle-ratelimit:error`: a call failed, or was answered by `onError`. */
export interface ErrorMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** What the call fails with, or what `onError` has answered. */
  readonly error: RatelimitError
}

/** On `drizzle-ratelimit:statement`: a statement has run. One decides calls of many keys. */
export interface StatementMessage {
  /** Undefined for a statement of several limits, which may have several prefixes. */
  readonly prefix: string | undefined
  /**
   * `take` decides on rows that exist, `make` on new ones, `adjust` gives back or charges into debt, `look`
   * only reads. `list` decides on several limits, `remove` resets a key, `sweep` deletes expired rows.
   */
  readonly statement: 'take' | 'make' | 'adjust' | 'look' | 'list' | 'remove' | 'sweep'
  /** Undefined for `sweep`. */
  readonly keys: number | undefined
  /** From the sending to the answer. */
  readonly durationMs: number
  /** Whether it failed. */
  readonly failed: boolean
}

/** A channel of `node:diagnostics_channel`, whose types not every project has. */
export interface Channel<Message> {
  readonly hasSubscribers: boolean
  publish(message: Message): void
  subscribe(listener: (message: Message) => void): void
  unsubscribe(listener: (message: Message) => void): void
}

const builtin = globalThis.process?.getBuiltinModule?.('node:diagnostics_channel')

function channelOf<Message>(name: string): Channel<Message> | undefined {
  // Only this package publishes on it.
  return builtin?.channel(`drizzle-ratelimit:${name}`) as Channel<Message> | undefined
}

/** The channels; undefined where the runtime has none. Each message is made only if somebody listens. */
export const channels: {
  readonly decision: Channel<DecisionMessage> | undefined
  readonly wait: Channel<WaitMessage> | undefined
  readonly error: Channel<ErrorMessage> | undefined
  readonly statement: Channel<StatementMessage> | undefined
} = {
  decision: channelOf('decision'),
  wait: channelOf('wait'),
  error: channelOf('error'),
  statement: channelOf('statement'),
}

/** Runs a statement, and tells those who listen how long it took. */
export async function timed<T>(
  about: Omit<StatementMessage, 'durationMs' | 'failed'>,
  run: () => Promise<T>,
): Promise<T> {
  if (!channels.statement?.hasSubscribers) return run()
  const startedAt = performance.now()
  let failed = true
  try {
    const result = await run()
    failed = false
    return result
  } finally {
    channels.statement?.publish({ ...about, durationMs: performance.now() - startedAt, failed })
  }
}
