import { RatelimitError } from '../errors.ts'

/** What Postgres or the driver said, as this package's error. */
export function toRatelimitError(error: unknown): RatelimitError {
  const cause = underlying(error)
  const sqlState = sqlStateOf(cause)
  if (sqlState && MISSING.has(sqlState)) {
    return new RatelimitError(
      'MISSING_TABLE',
      "A table of the rate limiter is missing, or not as this version expects it. Add `export * from 'drizzle-ratelimit/schema'` " +
        'to your Drizzle schema and run `npx drizzle-kit generate && npx drizzle-kit migrate`; `checkTables(db)` says what differs.',
      { cause, sqlState },
    )
  }
  return new RatelimitError(
    'DATABASE',
    sqlState
      ? `PostgreSQL refused the check with SQLSTATE ${sqlState}; the cause says why.`
      : 'The database could not be asked; the cause says why.',
    { cause, sqlState },
  )
}

/** Undefined table, undefined schema, undefined column. */
const MISSING: ReadonlySet<string> = new Set(['42P01', '3F000', '42703'])

/** Drizzle wraps the driver's error, and writes the parameters into its own message: the driver's is the one to pass on. */
function underlying(error: unknown): unknown {
  return error instanceof Error && error.cause !== undefined ? error.cause : error
}

function sqlStateOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined
}
