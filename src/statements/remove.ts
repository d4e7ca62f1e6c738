import { and, eq } from 'drizzle-orm'
import type { RateLimitTable } from '../../schema/index.ts'
import type { Statement } from '../database/statement.ts'
import { builder, Parameters } from './builder.ts'

/** The statement that removes the row of a key, so that its limit is new again. */
export function removeStatement(table: RateLimitTable): Statement {
  const parameters = new Parameters()
  const isTheRow = and(eq(table.prefix, parameters.text('prefix')), eq(table.key, parameters.text('key')))
  return parameters.render(builder.delete(table).where(isTheRow).getSQL())
}
