import { type Database, isTransaction, sessionOf } from './database.ts'

export interface Client {
  query(...request: readonly unknown[]): unknown
  on(event: 'error', listener: () => void): unknown
  off(event: 'error', listener: () => void): unknown
  release(isBroken: boolean): void
}

/** A Drizzle session on a pool like that of node-postgres. */
interface PoolSession {
  readonly client: { connect(): Promise<Client> }
}

/** Drizzle's sessions that check out a client for a transaction. */
export const POOLED: readonly string[] = ['NodePgSession', 'NeonSession', 'VercelPgSession']

/** The end of the last work on a single client. */
const lines = new WeakMap<object, Promise<unknown>>()

/**
 * Does work on a single client after all earlier work on it. Otherwise the statements of others would run in a
 * transaction that is open there, and be rolled back with it. On any other database the work is done at once.
 */
export function inLine<T>(db: Database, work: () => PromiseLike<T>): PromiseLike<T> {
  const session = isTransaction(db) ? undefined : sessionOf(db, POOLED)
  if (!session || isOnPool(session)) return work()
  const client = clientOf(session)
  const done = (lines.get(client) ?? Promise.resolve()).then(work)
  lines.set(
    client,
    done.catch(() => {}),
  )
  return done
}

/** A single client has no such count. A pool may be behind a proxy that only reads. */
export function isOnPool(session: object): session is PoolSession {
  return Reflect.get(clientOf(session), 'totalCount') !== undefined
}

export function clientOf(session: object): object {
  return Object('client' in session ? session.client : undefined)
}
