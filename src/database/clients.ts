import { type Database, isTransaction } from './database.ts'
import { kindsOf, type Session, sessionOf } from './session.ts'

// The drivers' clients on which the limiter opens transactions of its own.

/** A connection of a pool. */
export interface PoolClient {
  on(event: 'error', listener: () => void): unknown
  off(event: 'error', listener: () => void): unknown
  /** `true` closes the connection instead of keeping it. */
  release(destroy: boolean): void
}

/** A pool of node-postgres, or of the drivers that are built on it: Neon's and Vercel's over WebSockets. */
export interface Pool {
  readonly totalCount: number
  connect(): Promise<PoolClient>
}

/** A session of postgres.js, whose clients begin transactions. */
export interface PostgresJsSession extends Session {
  readonly client: {
    begin<T>(options: string, work: (client: unknown) => Promise<T>): Promise<T>
  }
}

/** Told by its members: a process can have the driver's class twice, and a proxy hides the class. */
export function isPool(client: unknown): client is Pool {
  const { totalCount, connect } = (client ?? {}) as Partial<Pool>
  return typeof totalCount === 'number' && typeof connect === 'function'
}

/** Drizzle's sessions on node-postgres, or on the drivers that are built on it. */
const OF_NODE_POSTGRES = ['NodePgSession', 'NeonSession', 'VercelPgSession']

/** The database's client if it is a single connection, which runs in a transaction whatever is asked of it. */
export function singleClient(db: Database): object | undefined {
  const session = isTransaction(db) ? undefined : sessionOf(db)
  if (!session) return undefined
  const { client } = session
  if (typeof client !== 'object' || client === null || isPool(client)) return undefined
  return kindsOf(session).some((kind) => OF_NODE_POSTGRES.includes(kind)) ? client : undefined
}

/** The end of what was asked last of each single connection. */
const ends = new WeakMap<object, Promise<unknown>>()

/** Runs the work after all work that was asked of the client before. */
export function oneAtATime<T>(client: object, work: () => Promise<T>): Promise<T> {
  const running = (ends.get(client) ?? Promise.resolve()).then(work, work)
  ends.set(client, running)
  return running
}

export function isPostgresJs(session: Session): session is PostgresJsSession {
  return kindsOf(session).includes('PostgresJsSession')
}

/** The same session on one of its connections. */
export function sessionOn(session: Session, client: unknown): Session {
  return Object.create(session, { client: { value: client } })
}
