import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'

const DUPLICATE_NAME = '42P05'
const UNKNOWN_NAME = '26000'

/** Whether a pooler has refused a kept statement. It says so before the statement is executed. */
export function isRefusal({ sqlState }: RatelimitError): boolean {
  return sqlState === DUPLICATE_NAME || sqlState === UNKNOWN_NAME
}

/** What Postgres or the driver said, as this package's error. */
export function toRatelimitError(error: unknown): RatelimitError {
  if (error instanceof RatelimitError) return error
  const cause = underlying(error)
  // The pool of node-postgres gives this one no code.
  const timedOut = cause instanceof Error && cause.message === 'timeout exceeded when trying to connect'
  const driverCode = timedOut ? 'CONNECT_TIMEOUT' : codeOf(cause)
  // Every SQLSTATE has a digit, so EPIPE is not one.
  const sqlState = driverCode && /^(?=.*\d)[0-9A-Z]{5}$/.test(driverCode) ? driverCode : undefined
  const code = codeFor(sqlState, driverCode)
  return new RatelimitError(code, MESSAGES[code], { cause, sqlState })
}

const MESSAGES = {
  MISSING_TABLE:
    "A table of the rate limiter is missing, or not as this version expects it. Add `export * from 'drizzle-ratelimit/schema'`, " +
    'or the tables of your own, to your Drizzle schema and run `npx drizzle-kit generate && npx drizzle-kit migrate`; `checkTables(db)` says what differs.',
  SERIALIZATION_FAILURE:
    'Another transaction changed the row first. Nothing was charged; run your transaction again.',
  DEADLOCK:
    'The check and another transaction waited for each other. Nothing was charged; run your transaction again, and check several ' +
    'limits with Ratelimit.limitAll.',
  TRANSACTION_ABORTED:
    'An earlier statement failed in this transaction, so Postgres refuses all others until it is rolled back.',
  UNREACHABLE: 'The database could not be reached. Nothing was charged.',
  OUTCOME_UNKNOWN:
    'The connection broke before the answer arrived: the charge may or may not have been made. It is not tried again by itself.',
  DATABASE: 'PostgreSQL refused the statement; sqlState and cause say why. Nothing was charged.',
} satisfies Partial<Record<RatelimitErrorCode, string>>

type DatabaseCode = keyof typeof MESSAGES

const BY_SQL_STATE: Readonly<Record<string, DatabaseCode>> = {
  '42P01': 'MISSING_TABLE', // undefined_table
  '3F000': 'MISSING_TABLE', // invalid_schema_name
  '42703': 'MISSING_TABLE', // undefined_column
  '40001': 'SERIALIZATION_FAILURE',
  '40P01': 'DEADLOCK',
  '25P02': 'TRANSACTION_ABORTED',
  '57P03': 'UNREACHABLE', // cannot_connect_now
  '53300': 'UNREACHABLE', // too_many_connections
  '08001': 'UNREACHABLE', // sqlclient_unable_to_establish_sqlconnection
  '08004': 'UNREACHABLE', // sqlserver_rejected_establishment_of_sqlconnection
  '40003': 'OUTCOME_UNKNOWN', // statement_completion_unknown
  '57P01': 'OUTCOME_UNKNOWN', // admin_shutdown: the commit may have been before it
  '57P02': 'OUTCOME_UNKNOWN', // crash_shutdown
}

/** Codes of Node and postgres.js that say: no connection was made, so no statement was sent. */
const NEVER_SENT: ReadonlySet<string> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['CONNECT_TIMEOUT', 'CONNECTION_ENDED'],
])

function codeFor(sqlState: string | undefined, driverCode: string | undefined): DatabaseCode {
  if (sqlState === undefined) return NEVER_SENT.has(driverCode ?? '') ? 'UNREACHABLE' : 'OUTCOME_UNKNOWN'
  return BY_SQL_STATE[sqlState] ?? (sqlState.startsWith('08') ? 'OUTCOME_UNKNOWN' : 'DATABASE')
}

/**
 * Drizzle wraps the driver's error, and writes the parameters into its own message: the driver's is the one
 * to pass on.
 */
function underlying(error: unknown): unknown {
  return error instanceof Error && error.cause !== undefined ? error.cause : error
}

function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' ? code : undefined
}
