import { entityKind, type SQL } from 'drizzle-orm'
import type { Database } from './database.ts'

/** The session between a Drizzle database and its driver. */
export interface Session {
  execute(query: SQL): PromiseLike<unknown>
  /** The driver's client, if the session has one. */
  readonly client?: unknown
}

function sessionOf({ _: inner }: Database): Session | undefined {
  return inner?.session && 'execute' in inner.session ? (inner.session as Session) : undefined
}

/** Whether `drizzle` was called without a client. Drivers notice it only at their first statement. */
export function lacksClient(db: Database): boolean {
  const session = sessionOf(db)
  return (
    session !== undefined && 'client' in session && (session.client === undefined || session.client === null)
  )
}

const known = new WeakMap<object, readonly string[]>()

/** Drizzle's names of a session's class and of its base classes. They are the same in minified code. */
export function kindsOf(session: object): readonly string[] {
  const kinds = known.get(session) ?? entityKinds(session.constructor)
  known.set(session, kinds)
  return kinds
}

function entityKinds(entity: unknown): string[] {
  if (typeof entity !== 'function' || !(entityKind in entity)) return []
  return [String(entity[entityKind]), ...entityKinds(Object.getPrototypeOf(entity))]
}
