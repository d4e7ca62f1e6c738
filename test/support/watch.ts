import type { SQL } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import type { Database } from '../../src/index.ts'

export interface Watched {
  readonly db: Database
  /** The text of every statement so far. */
  readonly statements: string[]
}

/** Whether a statement takes from rows that exist: it locks them. */
export function isTake(text: string): boolean {
  return text.includes('for update')
}

/** The database and its transactions, with every statement written down, and `before` run ahead of it. */
export function watch(
  db: Database,
  before: (text: string) => unknown = () => {},
  statements: string[] = [],
): Watched {
  const dialect = new PgDialect()
  return {
    statements,
    db: {
      transaction: (work, config) => db.transaction((tx) => work(watch(tx, before, statements).db), config),
      execute: async (query: SQL) => {
        const text = dialect.sqlToQuery(query).sql
        statements.push(text)
        await before(text)
        return db.execute(query)
      },
      refreshMaterializedView: undefined,
      ...('rollback' in db ? { rollback: undefined } : {}),
    },
  }
}
