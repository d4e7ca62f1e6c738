import { sql } from 'drizzle-orm'
import { RatelimitError } from '../errors.ts'
import {
  isPool,
  isPostgresJs,
  oneAtATime,
  type Pool,
  type PostgresJsSession,
  sessionOn,
  singleClient,
} from './clients.ts'
import type { Database } from './database.ts'
import { databaseError, toRatelimitError } from './database-error.ts'
import { retrying } from './retry.ts'
import { kindsOf, type Session, sessionOf } from './session.ts'

type Work<T> = (tx: Database) => Promise<T>

/** Drizzle's sessions over HTTP, which send each statement by itself. */
const WITHOUT_TRANSACTIONS = ['NeonHttpSession', 'PgRemoteSession', 'XataHttpSession', 'PrismaPgSession']

/**
 * Runs the work in a transaction of its own, at READ COMMITTED. If it lost against another transaction, it runs
 * again from the start. On a single connection nothing else of the limiters runs meanwhile.
 *
 * @throws RatelimitError `INVALID_OPTION` before any SQL, if the driver has no interactive transactions.
 */
export async function inTransaction<T>(db: Database, work: Work<T>): Promise<T> {
  const session = sessionOf(db)
  if (session && kindsOf(session).some((kind) => WITHOUT_TRANSACTIONS.includes(kind))) {
    throw new RatelimitError(
      'INVALID_OPTION',
      'Several limits need a driver that has interactive transactions, and this one sends each statement by itself. ' +
        'Nothing was sent. Use a driver over TCP or WebSockets, or check the limits one by one with limit.',
    )
  }
  const client = singleClient(db)
  return retrying(() => {
    const run = () => attempt(db, session, work)
    return client ? oneAtATime(client, run) : run()
  })
}

async function attempt<T>(db: Database, session: Session | undefined, work: Work<T>): Promise<T> {
  const own = session && ownTransaction(session)
  let isCommitting = false
  let failure: { readonly reason: unknown } | undefined
  const observed: Work<T> = async (tx) => {
    try {
      const result = await work(tx)
      isCommitting = true
      return result
    } catch (reason) {
      failure = { reason }
      throw reason
    }
  }
  try {
    if (own) return await own(observed)
    return await db.transaction(observed, { isolationLevel: 'read committed' })
  } catch (reason) {
    // Drizzle may throw the error of a rollback that failed afterwards.
    const error = toRatelimitError(failure ? failure.reason : reason)
    if (isCommitting && !own && error.code === 'UNREACHABLE') throw databaseError('OUTCOME_UNKNOWN', error)
    if (!isCommitting && error.code === 'OUTCOME_UNKNOWN') throw databaseError('UNREACHABLE', error)
    throw error
  }
}

/** Our own transaction, for drivers on which Drizzle's does harm when a connection breaks. */
function ownTransaction(session: Session): (<T>(work: Work<T>) => Promise<T>) | undefined {
  const { client } = session
  if (isPool(client)) return (work) => onPool(client, session, work)
  if (isPostgresJs(session)) return (work) => onPostgresJs(session, work)
  return undefined
}

/**
 * On a client of a pool. Drizzle 0.45 does not listen to the client's errors, so that a server that ends the
 * connection would end the process too. It also keeps the client if `begin` fails.
 */
async function onPool<T>(pool: Pool, session: Session, work: Work<T>): Promise<T> {
  const client = await pool.connect()
  let isBroken = false
  const listen = () => {
    isBroken = true
  }
  client.on('error', listen)
  const held = sessionOn(session, client)
  let isOpen = true
  try {
    await held.execute(sql`begin isolation level read committed`)
    const result = await work(transactionOf(held))
    await held.execute(sql`commit`)
    isOpen = false
    return result
  } catch (reason) {
    try {
      if (!isLost(toRatelimitError(reason))) {
        await held.execute(sql`rollback`)
        isOpen = false
      }
    } catch {}
    throw reason
  } finally {
    client.off('error', listen)
    // A client that is still in a transaction must not go back to the pool.
    client.release(isOpen || isBroken)
  }
}

/**
 * Whether a statement failed without a word of the server: the driver gave it up, or the connection broke. A
 * rollback would wait behind that statement, until the driver gives it up too.
 */
function isLost({ code, sqlState }: RatelimitError): boolean {
  return sqlState === undefined && (code === 'OUTCOME_UNKNOWN' || code === 'UNREACHABLE')
}

/**
 * After an error postgres.js sends a rollback. On a closed connection it then throws where nobody can catch it,
 * and the process ends. So postgres.js does not learn of an error that says that the connection is closed.
 * https://github.com/porsager/postgres/issues/1208
 */
function onPostgresJs<T>(session: PostgresJsSession, work: Work<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const begun = session.client.begin('isolation level read committed', async (client) => {
      try {
        return await work(transactionOf(sessionOn(session, client)))
      } catch (reason) {
        if (!saysClosed(toRatelimitError(reason))) throw reason
        reject(reason)
        return new Promise<never>(() => {})
      }
    })
    begun.then(resolve, reject)
  })
}

/** Codes of Node's sockets and of postgres.js. */
function saysClosed({ cause }: RatelimitError): boolean {
  return cause instanceof Error && 'code' in cause && /^(CONNECTION_|E[A-Z]+$)/.test(String(cause.code))
}

function transactionOf(session: Session): Database {
  return {
    _: { session },
    execute: (query) => session.execute(query),
    transaction: () => Promise.reject(new Error('The limiter opens no savepoints.')),
    refreshMaterializedView: undefined,
    rollback: undefined,
  }
}
