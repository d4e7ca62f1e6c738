import { unlimited } from '../algorithms/unlimited.ts'
import { distinctThresholds } from '../answers/thresholds.ts'
import { checkOptions } from '../base/check-options.ts'
import { onFirstUse } from '../base/on-first-use.ts'
import { connectionTo } from '../database/connection.ts'
import { ANY_SIZE, TableSize } from '../database/table-size.ts'
import { parseDuration } from '../duration.ts'
import type { Terms } from '../leases/leases.ts'
import { LEASE_NAMES, type LeaseTerms } from '../options/choices.ts'
import type { DenialOptions } from '../options/common.ts'
import type { RatelimitConfig } from '../options/config.ts'
import type { ConcurrencyConfig, CreditsConfig } from '../options/kinds.ts'
import { checkOption, hashOf, isBalance, readClock } from '../options/validate.ts'
import type { Ledger } from '../runtime/call.ts'
import type { OnEntries } from '../runtime/entry.ts'
import { statementsOf } from '../statements/statements.ts'
import { SHIPPED } from '../tables/shipped.ts'
import { Checker } from './checker.ts'
import type { DenialCounting } from './checker-config.ts'
import { watchPrefix } from './one-prefix.ts'

/** The default of `connections`. */
const CONNECTIONS = 4

const migration = /* @__PURE__ */ onFirstUse(() => import('../tables/auto-migrate.ts'))
const recording = /* @__PURE__ */ onFirstUse(() => import('./record.ts'))

/** Whether this is Workers, where a promise hangs if the I/O of another request resolves it. */
function isWorkers(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers'
}

/** The default of `maxBlockedKeys`. */
const BLOCKED_KEYS = 10_000

/** The default of the `maxKeys` of leases. */
const LEASED_KEYS = 10_000

/** The longest lease. What a process that ends does not give back is lost for others. */
const MAX_LEASE_MS = 3_600_000

/** The checker of a valid configuration, with its defaults. */
export function checkerOf(given: RatelimitConfig | ConcurrencyConfig | CreditsConfig): Checker {
  const other = given.limiter.kind === 'rate' ? undefined : given.limiter
  // The checker of leases and of credits runs their statements, and decides no call under a limiter of its own.
  const config = (other ? { ...given, limiter: unlimited() } : given) as RatelimitConfig
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
  const { distributed = false, onEntries } = config
  const { coalesce = !isWorkers(), waitUntil, reservationSecret, denials, lease, blocks = false } = config
  const excludesLease =
    durable ||
    keepEnded ||
    config.thresholds ||
    !coalesce ||
    isBalance(limiter) ||
    limiter.algorithm.excludesLeases
  const table = durable ? tables.durable : tables.ephemeral
  const rows = other?.rows ?? (limiter.stored ? limiter.rows : undefined)
  const isWatched = rows !== undefined && onOtherPlan === undefined
  // Loaded now, because loading might fail during an outage, when it is needed.
  if (onError !== 'throw') import('./degrading.ts').catch(() => {})
  const migrates = autoMigrate && !autoMigrateForbidden()
  const ensureTables = migrates ? async () => (await migration()).ensureTables(db, tables) : undefined
  const onCitus = distributed
    ? onFirstUse(async () => (await import('../runtime/distributed-table.ts')).distributedTable(table))
    : undefined
  return new Checker({
    home: connectionTo(db, { wish: preparedStatements, refused: false, renewed: 0 }),
    table: {
      table,
      statements: statementsOf(table, distributed),
      size: distributed ? ANY_SIZE : new TableSize(),
      distributed: onCitus,
    },
    namespace: {
      prefix,
      clock: clock && (() => readClock(clock)),
      refusesOther: onOtherPlan === 'throw',
      ledger: onEntries && ledgerOf(onEntries, prefix),
    },
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
    hash: config.hashKeys ? hashOf(config.hashKeys, prefix) : undefined,
    blocks,
    leases: lease === undefined ? undefined : termsOf(lease, !excludesLease),
    reservationSecret,
    onUse: isWatched ? watchPrefix(db, table, prefix, rows) : undefined,
    ensureTables: onCitus
      ? async () => {
          await ensureTables?.()
          await (await onCitus()).load(db)
        }
      : ensureTables,
    goOn: (work) => goOn(work, waitUntil),
  })
}

function ledgerOf(onEntries: OnEntries, prefix: string): Ledger {
  return {
    onEntries,
    record: async (...call) => (await recording()).recordCalls({ onEntries, prefix }, ...call),
  }
}

/** How denials are counted, with the defaults. */
function countingOf({ every = '10s', top = 100 }: DenialOptions): DenialCounting {
  return { everyMs: parseDuration(every, 'denials.every'), top }
}

/**
 * The terms of the leases, with the default.
 *
 * @param hasMeaning Whether leases can be used with the other options.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
function termsOf(lease: LeaseTerms, hasMeaning: boolean): Terms {
  checkOptions(lease, LEASE_NAMES, 'lease')
  const { tokens, for: time, maxKeys = LEASED_KEYS } = lease
  const forMs = parseDuration(time, 'lease.for')
  checkOption(
    [tokens, maxKeys].every((units) => Number.isSafeInteger(units) && units > 0) && forMs <= MAX_LEASE_MS,
    'tokens and maxKeys of a lease must be whole numbers above 0, and for at most an hour.',
  )
  checkOption(
    hasMeaning,
    'lease has no meaning with durable, keepEnded, thresholds, a balance, a lockout or coalesce: false, as in Workers.',
  )
  return { tokens, forMs, maxKeys }
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
