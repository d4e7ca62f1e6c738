import type pg from 'pg'
import { type Contender, PLENTY } from './contender.ts'

export const BARE_UPDATE = 'bare UPDATE by primary key'

/**
 * The least that a count in a row can cost. It reads no clock, decides nothing, answers nothing and makes no
 * row.
 */
export const bareUpdate: Contender = {
  name: BARE_UPDATE,
  open: async ({ pool }, limit = PLENTY) => ({
    check: (key) => takeOne(pool, 'bare', key),
    async taken(key) {
      const { rows } = await pool.query<{ tokens: number }>(
        `select tokens from rate_limit_ephemeral where prefix = 'bare' and key = $1`,
        [key],
      )
      return rows[0] ? limit - rows[0].tokens : 0
    },
    async makeRows(keys) {
      await pool.query(
        `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
           select 'bare', key, $1, now(), now() + interval '1 hour' from unnest($2::text[]) as key on conflict do nothing`,
        [limit, keys],
      )
    },
    close: async () => {},
  }),
}

const TEXT = 'update rate_limit_ephemeral set tokens = tokens - 1 where prefix = $1 and key = $2'

/** With a name, each connection plans the statement once. */
export async function takeOne(db: pg.Pool | pg.Client, prefix: string, key: string): Promise<boolean> {
  const { rowCount } = await db.query({ name: 'bare-update', text: TEXT, values: [prefix, key] })
  return rowCount === 1
}

/** The same statement without a name. It is parsed and planned each time. */
export async function takeOneUnprepared(
  db: pg.Pool | pg.Client,
  prefix: string,
  key: string,
): Promise<boolean> {
  const { rowCount } = await db.query(TEXT, [prefix, key])
  return rowCount === 1
}
