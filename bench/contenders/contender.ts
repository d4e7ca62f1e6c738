import type { Connections } from '../server/connections.ts'

/** So much that nothing is denied; the counters of some are 32 bits wide. */
export const PLENTY = 1_000_000_000

/** A limit that no run outlasts: no state starts anew in the middle of it. */
export const PERIOD_SECONDS = 3600

/** A way to limit rates, or the floor under all of them. */
export interface Contender {
  readonly name: string
  /**
   * Where its counts are: the CPU of the Postgres server says nothing of who keeps them elsewhere. Default:
   * `'postgres'`.
   */
  readonly store?: 'postgres' | 'elsewhere'
  /** @param limit What may be taken from a key each hour. Default: {@link PLENTY}. */
  open(connections: Connections, limit?: number): Promise<Opened>
}

export interface Opened {
  /** Takes one from a key; whether it was admitted. */
  check(key: string): Promise<boolean>
  /** How much was taken from a key, as the store has it. */
  taken(key: string): Promise<number>
  /** Makes the keys' rows, where a check does not. */
  makeRows?(keys: readonly string[]): Promise<void>
  close(): Promise<void>
}

/** Checks each key once, so that everyone has its rows, and what is measured is not how they are made. */
export async function makeKeys(
  { check, makeRows }: Pick<Opened, 'check' | 'makeRows'>,
  keys: readonly string[],
): Promise<void> {
  await makeRows?.(keys)
  const rest = keys.values()
  const caller = async () => {
    for (const key of rest) await check(key)
  }
  await Promise.all(Array.from({ length: 64 }, caller))
}
