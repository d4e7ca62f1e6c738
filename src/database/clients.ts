import { kindsOf, type Session } from './session.ts'

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

export function isPostgresJs(session: Session): session is PostgresJsSession {
  return kindsOf(session).includes('PostgresJsSession')
}

/** The same session on one of its connections. */
export function sessionOn(session: Session, client: unknown): Session {
  return Object.create(session, { client: { value: client } })
}
