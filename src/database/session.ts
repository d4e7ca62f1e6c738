import { entityKind, type SQL } from 'drizzle-orm'
import type { Database } from './database.ts'

/** What stands between a Drizzle database and its driver. */
export interface Session {
  execute(query: SQL): PromiseLike<unknown>
  /** The driver's client, where the session has one. */
  readonly client?: unknown
}

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

export function sessionOf({ _: inner }: Database): Session | undefined {
  return inner?.session && 'execute' in inner.session ? (inner.session as Session) : undefined
}

/** Whether `drizzle` was called without a client; drivers find that out at their first statement only. */
export function lacksClient(db: Database): boolean {
  const session = sessionOf(db)
  return (
    session !== undefined && 'client' in session && (session.client === undefined || session.client === null)
  )
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

const known = new WeakMap<object, readonly string[]>()

/** Drizzle's names of a session's class and of those that it extends. They survive when code is minified. */
export function kindsOf(session: object): readonly string[] {
  const kinds = known.get(session) ?? entityKinds(session.constructor)
  known.set(session, kinds)
  return kinds
}

function entityKinds(entity: unknown): string[] {
  if (typeof entity !== 'function' || !(entityKind in entity)) return []
  return [String(entity[entityKind]), ...entityKinds(Object.getPrototypeOf(entity))]
}
