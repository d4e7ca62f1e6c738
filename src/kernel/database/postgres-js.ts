/** What Drizzle uses of postgres.js in a transaction. */
interface Scope {
  unsafe(...query: readonly unknown[]): Promise<unknown>
  savepoint<T>(work: (scope: Scope) => Promise<T>): Promise<T>
}

/** A client of postgres.js. */
export interface PostgresJs {
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
export function sendingOnlyWhileOpen(client: PostgresJs): PostgresJs {
  const begin: PostgresJs['begin'] = (work) => {
    const line = new TransactionLine()
    const begun = client.begin((scope) => line.run(work, scope))
    begun.catch((error) => line.close(error))
    return begun
  }
  return Object.create(client, { begin: { value: begin } })
}

/** The connection of a transaction. */
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
