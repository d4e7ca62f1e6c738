import type { RatelimitConfig } from '../config.ts'
import { connectionTo } from '../database/connection.ts'
import { TableSize } from '../database/run.ts'
import { parseDuration } from '../duration.ts'
import { statementsOf } from '../statements/statements.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { readClock } from '../validate.ts'
import { Checker } from './checker.ts'
import { watchPrefix } from './one-prefix.ts'

/** How many statements may be under way by default. */
const CONNECTIONS = 4

/** Where a promise hangs if the I/O of another request resolves it. */
function isWorkers(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers'
}

/** How many denied keys are remembered by default. */
const BLOCKED_KEYS = 10_000

/** The checker of a valid configuration, with its defaults. */
export function checkerOf(config: RatelimitConfig): Checker {
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
  const { coalesce = !isWorkers(), waitUntil, reservationSecret } = config
  const table = durable ? tables.durable : tables.ephemeral
  if (limiter.stored && onOtherPlan === undefined) watchPrefix(db, table, prefix, limiter)
  // It is needed when something is wrong, and loading might fail then.
  if (onError !== 'throw') import('./degrading.ts').catch(() => {})
  const migrates = autoMigrate && !autoMigrateForbidden()
  return new Checker({
    home: connectionTo(db, { wish: preparedStatements, refused: false }),
    table: { table, statements: statementsOf(table), size: new TableSize() },
    namespace: { prefix, clock: clock && (() => readClock(clock)), refusesOther: onOtherPlan === 'throw' },
    limiter,
    reporting: { thresholds: [...new Set(thresholds)], dryRun },
    degrading: { onError, onDegraded },
    bounds: timeout === undefined ? undefined : { timeoutMs: parseDuration(timeout, 'timeout') },
    commit: durable ? (synchronousCommit ? 'flushed' : 'async') : 'as the session',
    connections: coalesce ? connections : undefined,
    cleanupProbability,
    keepEnded,
    maxBlockedKeys: inMemoryBlock ? maxBlockedKeys : undefined,
    reservationSecret,
    ensureTables: migrates
      ? async () => (await import('../tables/auto-migrate.ts')).ensureTables(db, tables)
      : undefined,
    goOn: (work) => goOn(work, waitUntil),
  })
}

/** Whether the environment forbids it, for deployments where only migrations may change the schema. */
function autoMigrateForbidden(): boolean {
  return globalThis.process?.env['PG_RATELIMIT_DISABLE_AUTO_MIGRATE'] === 'true'
}

/** The answer must not be lost if the runtime takes no work then. */
function goOn(work: Promise<unknown>, waitUntil: RatelimitConfig['waitUntil']): void {
  try {
    waitUntil?.(work)
  } catch {}
}
