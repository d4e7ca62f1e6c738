import { Credits, type CreditsConfig } from '../../src/credits/index.ts'
import { TestClock } from './clock.ts'
import type { TestDatabase } from './databases.ts'

/** Undated credits with a prefix and a clock of their own. */
export interface CreditsUnderTest {
  readonly clock: TestClock
  readonly prefix: string
  readonly config: CreditsConfig<false>
  readonly credits: Credits
  /** With the version of each row, so that even writing the same again would show. */
  rows(): Promise<Record<string, unknown>[]>
}

let prefixes = 0

export function creditsOn(
  database: TestDatabase,
  options: Partial<CreditsConfig<false>> = {},
): CreditsUnderTest {
  const clock = new TestClock()
  const { prefix = `credits ${prefixes++}` } = options
  const config = {
    ...{ db: database.db, prefix, clock: clock.now, cleanupProbability: 0 },
    ...options,
  } as CreditsConfig<false>
  const rows = () =>
    database.rows(
      `select xmin::text, ctid::text, to_jsonb(stored) as stored from rate_limit_durable stored where prefix = $1`,
      [prefix],
    )
  return { clock, prefix, config, credits: new Credits(config), rows }
}
