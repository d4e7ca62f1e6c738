import { type Contender, PERIOD_SECONDS, PLENTY } from './contender.ts'

const PREFIX = 'plain-sequence'

/**
 * A token bucket written by hand, in the limiter's own table. It locks the row, decides in the process, and
 * writes.
 */
export const plainSequence: Contender = {
  name: 'plain sequence',
  open: async ({ pool }, limit = PLENTY) => ({
    async check(key) {
      const client = await pool.connect()
      try {
        await client.query('begin')
        await client.query(
          `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
             values ($1, $2, $3, clock_timestamp(), clock_timestamp()) on conflict do nothing`,
          [PREFIX, key, limit],
        )
        const found = await client.query<{ tokens: number; last_refill: Date; now: Date }>(
          `select tokens, last_refill, clock_timestamp() as now
             from rate_limit_ephemeral where prefix = $1 and key = $2 for update`,
          [PREFIX, key],
        )
        const { tokens, lastRefill } = refilled(found.rows, limit)
        const admitted = tokens >= 1
        await client.query(
          `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
             values ($1, $2, $3, $4, $5) on conflict (prefix, key) do update
             set tokens = excluded.tokens, last_refill = excluded.last_refill, expires_at = excluded.expires_at`,
          [
            PREFIX,
            key,
            admitted ? tokens - 1 : tokens,
            lastRefill,
            new Date(lastRefill.getTime() + PERIOD_MS),
          ],
        )
        await client.query('commit')
        return admitted
      } catch (error) {
        await client.query('rollback')
        throw error
      } finally {
        client.release()
      }
    },
    async taken(key) {
      const { rows } = await pool.query<{ tokens: number }>(
        'select tokens from rate_limit_ephemeral where prefix = $1 and key = $2',
        [PREFIX, key],
      )
      return rows[0] ? limit - rows[0].tokens : 0
    },
    close: async () => {},
  }),
}

const PERIOD_MS = PERIOD_SECONDS * 1000

function refilled(
  [row]: readonly { tokens: number; last_refill: Date; now: Date }[],
  limit: number,
): { tokens: number; lastRefill: Date } {
  if (!row) throw new Error('The row is gone.')
  const refills = Math.floor((row.now.getTime() - row.last_refill.getTime()) / PERIOD_MS)
  return {
    tokens: Math.min(row.tokens + refills * limit, limit),
    lastRefill: new Date(row.last_refill.getTime() + refills * PERIOD_MS),
  }
}
