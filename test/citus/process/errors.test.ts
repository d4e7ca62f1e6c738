import type { SQL } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { citus } from 'drizzle-ratelimit/citus'
import { expect, test } from 'vitest'
import { type Database, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { errorOf } from '../../support/errors.ts'

test('a table that Citus has distributed by another column is refused', async () => {
  const dialect = new PgDialect()
  const db: Database = {
    execute: async (query: SQL) => {
      const asksForColumn = dialect.sqlToQuery(query).sql.includes('column_to_column_name')
      return asksForColumn ? [{ group: 1, lowest: '0', column: 'prefix' }] : [{ there: true }]
    },
    transaction: () => Promise.reject(new Error('no transaction')),
    refreshMaterializedView: undefined,
  }
  // Where the shards of a table are is known once in a process, so this table is no other test's.
  const options = {
    db,
    limiter: Ratelimit.fixedWindow(5, '1h'),
    prefix: 'by prefix',
    tables: rateLimitTables(),
  }
  const limited = () => new Ratelimit({ ...options, use: [citus()] }).limit('key')
  const { code, message } = await errorOf(limited)
  expect(code).toBe('MISSING_TABLE')
  expect(message).toContain('alter_distributed_table')
})
