import { entityKind } from 'drizzle-orm'
import { onceFor } from '../base/once-for.ts'
import type { Database } from './database.ts'

/** Drizzle's sessions on drivers that speak Postgres' own protocol. */
const WIRE = ['NodePgSession', 'PostgresJsSession', 'NeonSession', 'VercelPgSession']

/** The session of a database whose driver speaks Postgres' own protocol. */
export function wireSessionOf(db: Database): object | undefined {
  return sessionOf(db, WIRE)
}

/** The session of a database, if its class or a base class is one of these. */
export function sessionOf({ _: inner }: Database, kinds: readonly string[]): object | undefined {
  const session = inner?.session
  return session && kindsOf(session).some((kind) => kinds.includes(kind)) ? session : undefined
}

/** Drizzle's names of a session's class and of its base classes. They are the same in minified code. */
export const kindsOf: (session: object) => readonly string[] = /* @__PURE__ */ onceFor((session) =>
  entityKinds(session.constructor),
)

function entityKinds(entity: unknown): string[] {
  if (typeof entity !== 'function' || !(entityKind in entity)) return []
  return [String(entity[entityKind]), ...entityKinds(Object.getPrototypeOf(entity))]
}
