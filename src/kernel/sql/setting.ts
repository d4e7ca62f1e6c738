import { type SQL, sql } from 'drizzle-orm'
import { type Link, link, name } from './builder.ts'

/**
 * How the statement's own transaction commits: as the session does, without waiting for the WAL flush, or with
 * waiting for it. In a caller's transaction the setting would also apply to the caller's data. So it is always
 * `'as the session'` there.
 */
export type Commit = 'as the session' | 'async' | 'flushed'

const SETTING = 'ratelimit_setting'

/** Settings for the statement's own transaction, and a join that makes Postgres run them. */
export interface TransactionSettings {
  readonly links: readonly Link[]
  /** Joined to a query: Postgres never runs a `select` that nothing refers to. */
  readonly join: SQL
}

const COMMITS = {
  async: sql`set_config('synchronous_commit', 'off', true)`,
  flushed: sql`set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on'
    else current_setting('synchronous_commit') end, true)`,
}

/** How long a statement for many new keys waits for a row that another transaction is inserting. */
const LOCK_TIMEOUT = sql`set_config('lock_timeout', '3ms', true)`

export function transactionSettings(commit: Commit, lockTimeout = false): TransactionSettings {
  const settings = [
    ...(commit === 'as the session' ? [] : [COMMITS[commit]]),
    ...(lockTimeout ? [LOCK_TIMEOUT] : []),
  ]
  if (settings.length === 0) return { links: [], join: sql`` }
  const columns = settings.map((setting, i) => sql`${setting} as ${name(`setting_${i}`)}`)
  return {
    links: [link(SETTING, sql`select ${sql.join(columns, sql`, `)}`)],
    join: sql` cross join ${name(SETTING)}`,
  }
}
