import { checkerOf } from '../checker-of.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { watchPrefix } from '../kernel/engine/one-prefix.ts'
import { ROWS } from '../kernel/limits/rows.ts'
import { unlimited } from '../kernel/limits/unlimited.ts'
import type { RatelimitConfig } from '../kernel/options/config.ts'
import { settingsOf } from '../kernel/options/settings.ts'

/** What an object has whose rows are of a kind of its own. */
export interface OwnRows {
  /** It runs the statements of the object, and decides no call under a limiter of its own. */
  readonly checker: Checker
  /** Called when the object is used. */
  readonly onUse: () => void
}

/** @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION` */
export function ownRowsOf(kind: keyof typeof ROWS, config: Omit<RatelimitConfig, 'limiter'>): OwnRows {
  const given = { ...config, limiter: unlimited() } as RatelimitConfig
  const checker = checkerOf(settingsOf(given, { durable: true, periods: false }))
  const { table } = checker.rows.table
  return { checker, onUse: watchPrefix(config.db, table, config.prefix, ROWS[kind].columns.join()) }
}
