import type { RatelimitError } from './errors.ts'

// The diagnostics channels of the package. Node's built-in module is loaded at run time, because other
// runtimes, and bundlers for them, do not have it.

/** On `drizzle-ratelimit:decision`: a call was answered. */
export interface DecisionMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** The rate of the call. For `spend`, the share of this limit, or the whole rate after a denial. */
  readonly rate: number
  /** Whether it was allowed. */
  readonly success: boolean
  /** The capacity. */
  readonly limit: number
  /** Whole units that can be taken after the call. */
  readonly remaining: number
  /** Milliseconds until the same call would be allowed; 0 if it was. */
  readonly retryAfter: number
  /** Whether `onError` answered instead of the database. */
  readonly degraded: boolean
  /** Whether `dryRun` let a call pass that the limit denies. */
  readonly wouldDeny: boolean
  /** Whether prefetched units answered instead of the database. */
  readonly prefetched: boolean
  /** Whether the call joined a caller's transaction. */
  readonly joined: boolean
  /** Milliseconds from the call to its answer. */
  readonly durationMs: number
}

/**
 * On `drizzle-ratelimit:wait`: a call begins to wait, of `limitAll` for each key that is denied. A call of
 * `acquire` publishes it again when it has waited.
 */
export interface WaitMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** Milliseconds until it checks again. Of `acquire`, how long it has waited: 0 as it begins. */
  readonly waitMs: number
}

/** On `drizzle-ratelimit:error`: a call failed, or was answered by `onError`. */
export interface ErrorMessage {
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** The error of the call. `onError` may have answered it. */
  readonly error: RatelimitError
}

/** On `drizzle-ratelimit:statement`: a statement has run. One decides calls of many keys. */
export interface StatementMessage {
  /** Undefined for a statement of several limits, which may have several prefixes. */
  readonly prefix: string | undefined
  /**
   * `take` decides on existing rows and `make` on new ones. `adjust` gives back or charges into debt, and
   * `look` only reads. `list` decides on several limits, `lease` leases, extends or frees a slot, `remove`
   * resets a key, and `sweep` deletes expired rows.
   */
  readonly statement: 'take' | 'make' | 'adjust' | 'look' | 'list' | 'lease' | 'remove' | 'sweep'
  /** Undefined for `sweep`. */
  readonly keys: number | undefined
  /** Milliseconds from sending to the answer. */
  readonly durationMs: number
  /** Whether it failed. */
  readonly failed: boolean
}

/** A channel of `node:diagnostics_channel`. Not every project has Node's types. */
export interface Channel<Message> {
  readonly hasSubscribers: boolean
  publish(message: Message): void
  subscribe(listener: (message: Message) => void): void
  unsubscribe(listener: (message: Message) => void): void
}

const builtin = channelsOfRuntime()

/** Node's module, where the runtime has it. Next's edge runtime has the function too, but it throws. */
function channelsOfRuntime() {
  try {
    return globalThis.process?.getBuiltinModule?.('node:diagnostics_channel')
  } catch {
    return undefined
  }
}

function channelOf<Message>(name: string): Channel<Message> | undefined {
  // The type is right, because only this package publishes on the channel.
  return builtin?.channel(`drizzle-ratelimit:${name}`) as Channel<Message> | undefined
}

/** The channels; undefined if the runtime has none. A message is made only if the channel has subscribers. */
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

/** Runs a statement and publishes how long it took. */
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
