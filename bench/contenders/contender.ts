import type { Connections } from '../server/connections.ts'

/** A limit at which nothing is denied. It fits the counters that are 32 bits wide. */
export const PLENTY = 1_000_000_000

/** A period that is longer than any run, so no state starts again during a run. */
export const PERIOD_SECONDS = 3600

/** A way to limit rates, or the bare work under all of them. */
export interface Contender {
  readonly name: string
  /**
   * Where it keeps its counts. The CPU of the Postgres server is shown only for `'postgres'`. Default:
   * `'postgres'`.
   */
  readonly store?: 'postgres' | 'elsewhere'
  /** @param limit What may be taken from a key each hour. Default: {@link PLENTY}. */
  open(connections: Connections, limit?: number): Promise<Opened>
}

export interface Opened {
  /** Takes one from a key. Returns whether that was admitted. */
  check(key: string): Promise<boolean>
  /** How much was taken from a key, according to the store. */
  taken(key: string): Promise<number>
  /** Makes the keys' rows, if a check does not make them. */
  makeRows?(keys: readonly string[]): Promise<void>
  close(): Promise<void>
}

/** Checks each key once. Every contender then has its rows, so making them is not measured. */
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
