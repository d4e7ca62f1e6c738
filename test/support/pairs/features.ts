import { citus } from 'drizzle-ratelimit/citus'
import { countDenials } from 'drizzle-ratelimit/denials'
import { type Entry, ledger } from 'drizzle-ratelimit/ledger'
import { blocks, lockout } from 'drizzle-ratelimit/lockout'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type RateLimitTables, Ratelimit, rateLimitTables } from '../../../src/index.ts'

// Every limit, option and word of a call, and how each is switched on. The calls are in calls.ts, and what
// cannot be combined is in refused.ts. A new feature is one line in one of them.

/** Credits, and the options that make them. */
export const PREPAID: Readonly<Record<string, object>> = { Credits: {}, dated: { dated: true } }

/** The limits, with so many units. */
export const LIMITS: Readonly<Record<string, (units: number) => object>> = {
  tokenBucket: (units) => Ratelimit.tokenBucket(1, '1h', units),
  slidingWindow: (units) => Ratelimit.slidingWindow(units, '10h'),
  fixedWindow: (units) => Ratelimit.fixedWindow(units, '10h'),
  calendarWindow: (units) => calendarWindow(units, 'month'),
  gcra: (units) => Ratelimit.gcra(10, '10h', { burst: units }),
  lockout: (units) => lockout(units, '10h', { block: '1h' }),
  unlimited: () => Ratelimit.unlimited(),
}

export const TABLES: RateLimitTables = rateLimitTables({
  ephemeral: 'pairs_ephemeral',
  durable: 'pairs_durable',
})

/** The options of the constructor, each with a value that is not the default; and the class that has them. */
export const OPTIONS: Readonly<Record<string, (entries: Entry[]) => object>> = {
  Quota: () => ({}),
  durable: () => ({ durable: true }),
  synchronousCommit: () => ({ synchronousCommit: true }),
  tables: () => ({ tables: TABLES }),
  cleanupProbability: () => ({ cleanupProbability: 1 }),
  keepEnded: () => ({ keepEnded: true }),
  grace: () => ({ grace: '1d' }),
  blocks: () => ({ use: [blocks()] }),
  inMemoryBlock: () => ({ inMemoryBlock: true }),
  maxBlockedKeys: () => ({ maxBlockedKeys: 1 }),
  citus: () => ({ use: [citus()] }),
  autoMigrate: () => ({ autoMigrate: true }),
  timeout: () => ({ timeout: false }),
  onError: () => ({ onError: 'deny' }),
  onDegraded: () => ({ onDegraded: () => {} }),
  coalesce: () => ({ coalesce: false }),
  connections: () => ({ connections: 2 }),
  preparedStatements: () => ({ preparedStatements: true }),
  waitUntil: () => ({ waitUntil: () => {} }),
  thresholds: () => ({ thresholds: [0.5] }),
  dryRun: () => ({ dryRun: true }),
  hashKeys: () => ({ hashKeys: true }),
  countDenials: () => ({ use: [countDenials()] }),
  onOtherPlan: () => ({ onOtherPlan: 'throw' }),
  prefetch: () => ({ use: [prefetch({ tokens: 3, for: '1h', mayLose: 3 })] }),
  ledger: (entries) => ({ use: [ledger(async (_, more) => void entries.push(...more))] }),
}

/** The units of a plan that a call brings. */
export const PLAN = 12

/** The options of a charge but for its rate. The first two charges have one id. */
export const WORDS: Readonly<Record<string, (limit: string, place: number) => object>> = {
  tx: () => ({}),
  limiter: (limit) => ({ limiter: LIMITS[limit]?.(PLAN) }),
  force: () => ({ force: true }),
  atLeast: () => ({ atLeast: 1 }),
  once: (_, place) => ({ once: { id: `event ${Math.max(place, 1)}`, for: '1d' } }),
}

/** What a feature needs, which is then switched on too. */
export const NEEDS: Readonly<Record<string, string>> = {
  synchronousCommit: 'durable',
  keepEnded: 'Quota',
  grace: 'keepEnded',
  thresholds: 'Quota',
  maxBlockedKeys: 'inMemoryBlock',
  onDegraded: 'onError',
  'reserve with id': 'Quota',
  openReservations: 'Quota',
  settleExpired: 'Quota',
  changePlan: 'keepEnded',
  block: 'blocks',
}
