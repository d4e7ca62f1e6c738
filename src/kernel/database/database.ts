import { entityKind, type SQL } from 'drizzle-orm'
import { onceFor } from '../base/once.ts'

/**
 * A Drizzle Postgres database or transaction, with any driver, with or without a schema.
 *
 * The type lists the members that the limiter needs, because the names and type parameters of Drizzle's classes
 * differ between 0.45 and 1.0. It refuses MySQL and SQLite, which have no materialized views in Drizzle.
 */
export interface Database {
  /** Runs one statement. */
  execute(query: SQL): PromiseLike<unknown>
  /** Runs work in a transaction of its own. */
  transaction<T>(
    work: (tx: Database) => Promise<T>,
    config?: { readonly isolationLevel: 'read committed' },
  ): Promise<T>
  /** Only Postgres has it. */
  refreshMaterializedView: unknown
  /** Drizzle's internals, such as the session. */
  readonly _?: { readonly session?: object }
  /** Only transactions have it. */
  rollback?: unknown
}

/**
 * The database of a constructor. The type error about one that is not for Postgres says so. About another one,
 * such as one of a second copy of drizzle-orm, TypeScript says what differs.
 */
export type PostgresOf<D> = unknown extends D
  ? Database
  : D extends Database
    ? D
    : D extends Pick<Database, 'refreshMaterializedView'>
      ? Database
      : 'drizzle-ratelimit needs a PostgreSQL database' & Database

/** Whether this is a transaction. Only transactions can be rolled back. */
export function isTransaction(db: unknown): boolean {
  return typeof db === 'object' && db !== null && 'rollback' in db
}

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
