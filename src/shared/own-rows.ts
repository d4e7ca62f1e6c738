import type { SQL } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import { checkerOf } from '../checker-of.ts'
import type { Connection } from '../kernel/database/connection.ts'
import { type Row, run } from '../kernel/database/run.ts'
import { kept, type Statement, type Values } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { watchPrefix } from '../kernel/engine/one-prefix.ts'
import { ROWS } from '../kernel/limits/rows.ts'
import { unlimited } from '../kernel/limits/unlimited.ts'
import type { RatelimitConfig } from '../kernel/options/config.ts'
import { settingsOf } from '../kernel/options/settings.ts'
import type { Parameters } from '../kernel/sql/builder.ts'
import type { Commit } from '../kernel/sql/guard.ts'
import { CLOCK_MS } from '../kernel/sql/levels.ts'

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

/** What a statement on such rows is built for. */
export interface OwnSource {
  readonly table: RateLimitTable
  readonly injectedClock: boolean
  readonly commit: Commit
  readonly guarded: boolean
}

/** The time by which such a statement decides. */
export function clockOf({ injectedClock }: OwnSource, parameters: Parameters): SQL<number> {
  return injectedClock ? parameters.number('clock') : CLOCK_MS
}

/** How what is written there is committed. A transaction of the caller decides that itself. */
export function commitOn({ isTransaction }: Connection, { rows }: Checker): Commit {
  return isTransaction ? 'as the session' : rows.commit
}

/**
 * A statement on such rows. The result sends it. A clock that fails does so before that.
 *
 * @param name What distinguishes it from the others of the table.
 */
export function ownStatement(
  { rows: { table, namespace } }: Checker,
  connection: Connection,
  name: string,
  build: (source: OwnSource) => Statement,
  values: Values,
  commit: Commit = 'as the session',
): () => Promise<readonly Row[]> {
  const clock = namespace.clock?.() ?? null
  const injectedClock = clock !== null
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${injectedClock} ${commit} ${guarded}`, () =>
      build({ table: table.table, injectedClock, commit, guarded }),
    )
  const { prefix } = namespace
  return () => run(connection, [table.size], statementFor, { prefix, clock, ...values }, {})
}
