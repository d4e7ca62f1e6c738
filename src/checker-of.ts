import { distinctThresholds } from './kernel/answers/thresholds.ts'
import { onFirstUse } from './kernel/base/once.ts'
import { connectionTo } from './kernel/database/connection.ts'
import { parseDuration } from './kernel/duration.ts'
import { Timeout } from './kernel/engine/bounds.ts'
import { Checker } from './kernel/engine/checker.ts'
import { watchPrefix } from './kernel/engine/one-prefix.ts'
import { isOfOthers, partsIn, tableOf } from './kernel/engine/own-layer.ts'
import type { Parts } from './kernel/engine/parts.ts'
import { type GoOn, sweepsOf } from './kernel/engine/sweeps.ts'
import type { AnyLayer } from './kernel/options/choices.ts'
import type { RatelimitConfig } from './kernel/options/config.ts'
import type { Settings } from './kernel/options/settings.ts'
import { hashOf, readClock } from './kernel/options/validate.ts'
import { watchFor } from './kernel/queue/waits.ts'

const migration = /* @__PURE__ */ onFirstUse(() => import('./tables/auto-migrate.ts'))

/**
 * The checker of these settings.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkerOf(settings: Settings): Checker {
  const { db, limiter, prefix, durable, tables, keepEnded, clock, coalesce } = settings
  const { onError, onOtherPlan, timeout, grace } = settings
  const use: readonly AnyLayer[] = settings.use
  const own = partsIn(settings)
  const table = tableOf(durable ? tables.durable : tables.ephemeral, use)
  const kind = limiter.stored ? limiter.rows : undefined
  const isWatched = kind !== undefined && onOtherPlan === undefined
  // Loaded now, because loading might fail during an outage, when it is needed.
  if (onError !== 'throw') import('./kernel/engine/degrading.ts').catch(() => {})
  // In some deployments only migrations may change the schema.
  const isForbidden = globalThis.process?.env['PG_RATELIMIT_DISABLE_AUTO_MIGRATE'] === 'true'
  const migrates = settings.autoMigrate && !isForbidden
  const ensureTables = migrates ? async () => (await migration()).ensureTables(db, tables) : undefined
  const rows: Parts['rows'] = {
    connection: connectionTo(db, { wish: settings.preparedStatements, refused: false, renewed: 0 }),
    table,
    namespace: {
      prefix,
      clock: clock && (() => readClock(clock)),
      refusesOther: onOtherPlan === 'throw',
      ledger: own.ledger?.(settings),
      onUse: isWatched ? watchPrefix(db, table.table, prefix, kind) : undefined,
    },
    commit: durable ? (settings.synchronousCommit ? 'flushed' : 'async') : 'as the session',
    ensureTables: table.load
      ? async () => {
          await ensureTables?.()
          await table.load?.(db)
        }
      : ensureTables,
  }
  const goOn: GoOn = (work) => handOver(work, settings.waitUntil)
  const alone: Parts['alone'] = {
    degrading: { onError, onDegraded: settings.onDegraded },
    bounds:
      timeout === false ? undefined : { time: new Timeout(parseDuration(timeout, 'timeout'), coalesce) },
    connections: coalesce ? settings.connections : undefined,
    sweeps: sweepsOf(rows, settings.cleanupProbability ?? (keepEnded ? 0 : 0.1), keepEnded, goOn),
    watch: watchFor(prefix, coalesce),
    maxBlockedKeys: settings.inMemoryBlock ? settings.maxBlockedKeys : undefined,
    inAdvance: own.inAdvance,
    goOn,
  }
  const terms: Parts['terms'] = {
    limiter,
    reporting: { thresholds: distinctThresholds(settings.thresholds), dryRun: settings.dryRun },
    keepEnded,
    graceMs: grace === undefined ? 0 : parseDuration(grace, 'grace'),
    gate: own.gate,
    layers: use.filter(isOfOthers).concat(own.begin?.({ rows, alone }) ?? []),
    hash: settings.hashKeys ? hashOf(settings.hashKeys, prefix) : undefined,
  }
  return new Checker({ rows, terms, alone })
}

/** Hands the work to the runtime. If the runtime refuses it, the answer must not be lost. */
function handOver(work: Promise<unknown>, waitUntil: RatelimitConfig['waitUntil']): void {
  try {
    waitUntil?.(work)
  } catch {}
}
