import { unlimited } from '../algorithms/unlimited.ts'
import type { ConcurrencyConfig, DenialOptions, RatelimitConfig } from '../config.ts'
import { connectionTo } from '../database/connection.ts'
import { TableSize } from '../database/table-size.ts'
import { parseDuration } from '../duration.ts'
import { statementsOf } from '../statements/statements.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { hashOf, isConcurrency, readClock } from '../validate.ts'
import { Checker } from './checker.ts'
import type { DenialCounting } from './checker-config.ts'
import { watchPrefix } from './one-prefix.ts'
import { distinctThresholds } from './thresholds.ts'

/** The default of `connections`. */
const CONNECTIONS = 4

/** Whether this is Workers, where a promise hangs if the I/O of another request resolves it. */
function isWorkers(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers'
}

/** The default of `maxBlockedKeys`. */
const BLOCKED_KEYS = 10_000

/** The checker of a valid configuration, with its defaults. */
export function checkerOf(given: RatelimitConfig | ConcurrencyConfig): Checker {
  const leases = isConcurrency(given.limiter) ? given.limiter : undefined
  // The checker of a limit on leases runs their statements, and decides no call.
  const config: RatelimitConfig = leases
    ? { ...(given as ConcurrencyConfig), limiter: unlimited() }
    : (given as RatelimitConfig)
  const { db, limiter, prefix, durable = false, synchronousCommit = false } = config
  const { inMemoryBlock = false, maxBlockedKeys = BLOCKED_KEYS, connections = CONNECTIONS } = config
  const {
    keepEnded = false,
    cleanupProbability = keepEnded ? 0 : 0.1,
    clock,
    tables = SHIPPED,
    autoMigrate = false,
  } = config
  const { preparedStatements, thresholds = [], dryRun = false } = config
  const { timeout, onError = 'throw', onDegraded, onOtherPlan } = config
  const { coalesce = !isWorkers(), waitUntil, reservationSecret, denials } = config
  const table = durable ? tables.durable : tables.ephemeral
  const rows = leases?.rows ?? (limiter.stored ? limiter.rows : undefined)
  if (rows !== undefined && onOtherPlan === undefined) watchPrefix(db, table, prefix, rows)
  // Loaded now, because loading might fail during an outage, when it is needed.
  if (onError !== 'throw') import('./degrading.ts').catch(() => {})
  const migrates = autoMigrate && !autoMigrateForbidden()
  return new Checker({
    home: connectionTo(db, { wish: preparedStatements, refused: false }),
    table: { table, statements: statementsOf(table), size: new TableSize() },
    namespace: { prefix, clock: clock && (() => readClock(clock)), refusesOther: onOtherPlan === 'throw' },
    limiter,
    reporting: { thresholds: distinctThresholds(thresholds), dryRun },
    degrading: { onError, onDegraded },
    bounds: timeout === undefined ? undefined : { timeoutMs: parseDuration(timeout, 'timeout') },
    commit: durable ? (synchronousCommit ? 'flushed' : 'async') : 'as the session',
    connections: coalesce ? connections : undefined,
    cleanupProbability,
    keepEnded,
    graceMs: config.grace === undefined ? 0 : parseDuration(config.grace, 'grace'),
    denials: denials && countingOf(denials),
    maxBlockedKeys: inMemoryBlock ? maxBlockedKeys : undefined,
    hash: config.hashKeys ? hashOf(config.hashKeys) : undefined,
    reservationSecret,
    ensureTables: migrates
      ? async () => (await import('../tables/auto-migrate.ts')).ensureTables(db, tables)
      : undefined,
    goOn: (work) => goOn(work, waitUntil),
  })
}

/** How denials are counted, with the defaults. */
function countingOf({ every = '10s', top = 100 }: DenialOptions): DenialCounting {
  return { everyMs: parseDuration(every, 'denials.every'), top }
}

/** Whether the environment forbids `autoMigrate`: in some deployments only migrations may change the schema. */
function autoMigrateForbidden(): boolean {
  return globalThis.process?.env['PG_RATELIMIT_DISABLE_AUTO_MIGRATE'] === 'true'
}

/** Hands the work to the runtime. If the runtime refuses it, the answer must not be lost. */
function goOn(work: Promise<unknown>, waitUntil: RatelimitConfig['waitUntil']): void {
  try {
    waitUntil?.(work)
  } catch {}
}
