import type { Database } from './database.ts'
import { isOfConnection, toRatelimitError } from './database-error.ts'
import { type PostgresJs, sendingOnlyWhileOpen } from './postgres-js.ts'
import { sessionOf } from './session.ts'

/** A client that a pool has handed out. */
interface Client {
  query(...request: readonly unknown[]): unknown
  on(event: 'error', listener: () => void): unknown
  off(event: 'error', listener: () => void): unknown
  release(isBroken: boolean): void
}

/** A Drizzle session on a pool like that of node-postgres. */
interface PoolSession {
  readonly client: { connect(): Promise<Client> }
}

/** A Drizzle session on a client of postgres.js. */
interface PostgresJsSession {
  readonly client: PostgresJs
}

/** Drizzle's sessions that check out a client for a transaction. */
const POOLED = ['NodePgSession', 'NeonSession', 'VercelPgSession']

/**
 * Runs work on a database, which is the same as the given one. If that has a pool, it runs on a client that is
 * checked out and released here. Drizzle 0.45 does not listen for the errors of its client. It loses the client
 * if a transaction cannot begin, and hands it back in an open transaction if the rollback fails.
 *
 * On postgres.js, which hands out no clients, the transactions that it begins are kept from sending too late.
 */
export async function onOwnClient<T>(db: Database, work: (own: Database) => Promise<T>): Promise<T> {
  const other = sessionOf(db, ['PostgresJsSession'])
  if (other && beginsScopes(other)) return work(withClient(db, other, sendingOnlyWhileOpen(other.client)))
  const session = sessionOf(db, POOLED)
  if (!session || !isOnPool(session)) return work(db)
  const client = await session.client.connect()
  let isBroken = false
  const noteBreak = () => {
    isBroken = true
  }
  const query: Client['query'] = (...request) => {
    const answer = client.query(...request)
    Promise.resolve(answer).catch((error) => {
      if (isOfConnection(toRatelimitError(error))) noteBreak()
    })
    return answer
  }
  client.on('error', noteBreak)
  try {
    return await work(withClient(db, session, Object.create(client, { query: { value: query } })))
  } finally {
    // A broken client may have further errors.
    if (!isBroken) client.off('error', noteBreak)
    client.release(isBroken)
  }
}

/** A single client has no such count. */
function isOnPool(session: object): session is PoolSession {
  return 'totalCount' in clientOf(session)
}

/** A transaction of postgres.js begins none. */
function beginsScopes(session: object): session is PostgresJsSession {
  return 'begin' in clientOf(session)
}

function clientOf(session: object): object {
  return Object('client' in session ? session.client : undefined)
}

/** The same database with one client. With replicas, it is the primary. */
function withClient(db: Database, session: object, client: object): Database {
  const primary = '$primary' in db ? Object(db.$primary) : db
  return Object.create(primary, { session: { value: Object.create(session, { client: { value: client } }) } })
}
