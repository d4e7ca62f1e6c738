import { type Database, sessionOf } from './database.ts'
import { isOfConnection, toRatelimitError } from './database-error.ts'
import { type Client, clientOf, inLine, isOnPool, POOLED } from './single-client.ts'

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
  if (!session || !isOnPool(session)) return inLine(db, () => work(db))
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

/** A transaction of postgres.js begins none. */
function beginsScopes(session: object): session is { readonly client: PostgresJs } {
  return 'begin' in clientOf(session)
}

/** The same database with one client. With replicas, it is the primary. */
function withClient(db: Database, session: object, client: object): Database {
  const primary = '$primary' in db ? Object(db.$primary) : db
  return Object.create(primary, { session: { value: Object.create(session, { client: { value: client } }) } })
}

/** What Drizzle uses of postgres.js in a transaction. */
interface Scope {
  unsafe(...query: readonly unknown[]): Promise<unknown>
  savepoint<T>(work: (scope: Scope) => Promise<T>): Promise<T>
}

interface PostgresJs {
  begin<T>(work: (scope: Scope) => Promise<T>): Promise<T>
}

/**
 * The same client, but its transactions send nothing more once their connection has broken. postgres.js 3.4.9
 * sends a rollback, a commit or a statement to a closed connection, and this throws where nobody can catch it,
 * so the process ends. If the connection is about to close, the rollback in it never ends, and later queries
 * that get this connection never end either.
 *
 * `begin` itself rejects when the connection closes. Nobody waits for work that ends later.
 */
function sendingOnlyWhileOpen(client: PostgresJs): PostgresJs {
  const begin: PostgresJs['begin'] = (work) => {
    const line = new TransactionLine()
    const begun = client.begin((scope) => line.run(work, scope))
    begun.catch((error) => line.close(error))
    return begun
  }
  return Object.create(client, { begin: { value: begin } })
}

class TransactionLine {
  #closed: { readonly reason: unknown } | undefined

  close(reason: unknown): void {
    this.#closed ??= { reason }
  }

  /** Does work in a scope. It never settles if the connection has broken, so that postgres.js ends no scope. */
  run<T>(work: (scope: Scope) => Promise<T>, scope: Scope): Promise<T> {
    return new Promise((resolve, reject) => {
      const unlessClosed =
        <R>(settle: (how: R) => void) =>
        (how: R) => {
          if (!this.#closed) settle(how)
        }
      work(this.#within(scope)).then(unlessClosed(resolve), unlessClosed(reject))
    })
  }

  #within(scope: Scope): Scope {
    const unsafe: Scope['unsafe'] = (...query) => {
      this.#mustBeOpen()
      const answer = scope.unsafe(...query)
      answer.catch((error) => {
        // The query rejects before `begin` does. Only errors of the connection have a number.
        if (Object(error).errno !== undefined) this.close(error)
      })
      return answer
    }
    const savepoint: Scope['savepoint'] = async (work) => {
      this.#mustBeOpen()
      return scope.savepoint((nested) => this.run(work, nested))
    }
    return Object.create(scope, { unsafe: { value: unsafe }, savepoint: { value: savepoint } })
  }

  #mustBeOpen(): void {
    if (this.#closed) throw this.#closed.reason
  }
}
