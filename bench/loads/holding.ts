import { sql, TransactionRollbackError } from 'drizzle-orm'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { Ratelimit } from '../../src/index.ts'

type Transaction = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0]

/** Rolls a transaction back. */
type Release = () => Promise<void>

/**
 * Holds each row by an open transaction of its own. One row is locked, one is charged, and one is being made.
 *
 * @param holders Connections of their own, so that a held row takes no place from the checks.
 */
export async function holdThree(
  holders: NodePgDatabase,
  limiter: Ratelimit,
  keys: { readonly locked: string; readonly charged: string; readonly made: string },
): Promise<Release> {
  const charge = (key: string) => hold(holders, (tx) => limiter.limit(key, { tx }))
  const lock = sql`select from rate_limit_ephemeral where prefix = ${limiter.prefix} and key = ${keys.locked} for update`
  const held = [hold(holders, (tx) => tx.execute(lock)), charge(keys.charged), charge(keys.made)]
  const releases = await Promise.all(held)
  return async () => {
    await Promise.all(releases.map((release) => release()))
  }
}

function hold(db: NodePgDatabase, take: (tx: Transaction) => Promise<unknown>): Promise<Release> {
  return new Promise((resolve, reject) => {
    const ended = db
      .transaction(async (tx) => {
        await take(tx)
        await new Promise<void>((letGo) =>
          resolve(() => {
            letGo()
            return ended
          }),
        )
        tx.rollback()
      })
      .catch((error) => {
        if (!(error instanceof TransactionRollbackError)) reject(error)
      })
  })
}
