import type pg from 'pg'

/** Copies the one row in the table, which the limiter has written, to `user:1` and so on. */
export async function copyRow(pool: pg.Pool, copies: number): Promise<void> {
  await pool.query(
    `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
       select prefix, 'user:' || number, tokens, last_refill, expires_at
       from rate_limit_ephemeral, generate_series(1, $1::int) as number`,
    [copies],
  )
}
