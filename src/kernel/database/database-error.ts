import { RatelimitError, type RatelimitErrorCode } from '../errors.ts'

const DUPLICATE_NAME = '42P05'
const UNKNOWN_NAME = '26000'
const FEATURE_NOT_SUPPORTED = '0A000'

/** Whether a pooler has refused a kept statement. It does so before the statement is executed. */
export function isRefusal({ sqlState }: RatelimitError): boolean {
  return sqlState === DUPLICATE_NAME || sqlState === UNKNOWN_NAME
}

/** Whether the connection may not be used again, because it has broken or nobody knows what it does. */
export function isOfConnection({ code }: RatelimitError): boolean {
  return code === 'UNREACHABLE' || code === 'OUTCOME_UNKNOWN'
}

/** The error of work that has charged nothing, even if its answer is lost. */
export function nothingCharged(error: RatelimitError): RatelimitError {
  return error.code === 'OUTCOME_UNKNOWN' ? databaseError('UNREACHABLE', error) : error
}

const unsent = new WeakSet<RatelimitError>()

/** The error of work of which nothing was sent. */
export function neverSent(error: RatelimitError): RatelimitError {
  const known = nothingCharged(error)
  unsent.add(known)
  return known
}

/** Whether it is certain that nothing was sent. */
export function wasNeverSent(error: RatelimitError): boolean {
  return unsent.has(error)
}

/** Work that only reads, or charges nothing. Its errors say so. */
export async function uncharged<T>(work: PromiseLike<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw error instanceof RatelimitError ? nothingCharged(error) : error
  }
}

/**
 * Whether a kept statement was refused because its columns have other types now. Postgres does so before it
 * executes it. Citus has the same SQLSTATE for other things.
 */
export function isOutdated({ sqlState, cause }: RatelimitError): boolean {
  return sqlState === FEATURE_NOT_SUPPORTED && Object(cause).routine === 'RevalidateCachedQuery'
}

/** An error of Postgres or the driver as an error of this package. */
export function toRatelimitError(error: unknown): RatelimitError {
  if (error instanceof RatelimitError) return error
  const cause = mostSpecific(error)
  const sqlState = isOfStandby(cause) ? '25006' : sqlStateOf(cause)
  const found = databaseError(codeFor(sqlState, cause), { cause, sqlState })
  return wasNotConnected(cause) ? neverSent(found) : found
}

export function databaseError(
  code: DatabaseCode,
  { cause, sqlState }: Pick<RatelimitError, 'cause' | 'sqlState'>,
): RatelimitError {
  const meaning = code === 'DATABASE' ? MEANINGS[sqlState ?? ''] : undefined
  const message = meaning ? `${meaning} The call had no effect.` : MESSAGES[code]
  return new RatelimitError(code, message, { cause, sqlState })
}

type DatabaseCode = Extract<
  RatelimitErrorCode,
  | 'MISSING_TABLE'
  | 'SERIALIZATION_FAILURE'
  | 'DEADLOCK'
  | 'TRANSACTION_ABORTED'
  | 'UNREACHABLE'
  | 'OUTCOME_UNKNOWN'
  | 'DATABASE'
>

const MESSAGES: Readonly<Record<DatabaseCode, string>> = {
  MISSING_TABLE:
    'A table of the rate limiter is missing, or differs from what this version expects. Run `npx drizzle-ratelimit init`, which adds ' +
    "`export * from 'drizzle-ratelimit/schema'` to your Drizzle schema and writes the migrations, and `npx drizzle-kit migrate`. With " +
    '`drizzle-kit push`, schemaFilter and tablesFilter in its configuration have to let the tables pass. If yours have other names, ' +
    'give the limiter `tables`. `npx drizzle-ratelimit check` lists the differences.',
  SERIALIZATION_FAILURE:
    'Another transaction changed the row first. The call had no effect; run your transaction again.',
  DEADLOCK:
    'The call and another transaction waited for each other. The call had no effect; run your transaction again, and check several ' +
    'limits with limitAll.',
  TRANSACTION_ABORTED:
    'An earlier statement failed in this transaction, so Postgres refuses all others until it is rolled back.',
  UNREACHABLE:
    'No connection was free or could be made, or it broke before the commit. The call had no effect.',
  OUTCOME_UNKNOWN:
    'The connection broke before the answer arrived: the call may or may not have taken effect. It was not tried again.',
  DATABASE: 'PostgreSQL refused the statement; see sqlState and cause. The call had no effect.',
}

/** What refusals that people meet mean, and what to do. */
const MEANINGS: Readonly<Record<string, string>> = {
  '3D000': 'The server has no database with the name in the connection: create it, or correct the name.',
  '25006':
    'The server or the transaction is read-only: use the primary server and not a replica, and a transaction that may write.',
  '28000':
    'The server does not let this user in: look at the user in the connection, at SSL, and at pg_hba.conf.',
  '28P01': 'The password in the connection is wrong for its user.',
  '42501':
    "The connection's role may not do this: grant it USAGE on the schema, and what `npx drizzle-ratelimit check` says it lacks.",
  '42P10':
    'A table of the limiter has no primary key on (prefix, key): `npx drizzle-ratelimit check` prints the SQL that adds it.',
  '55P03':
    'Another transaction held the row for longer than lock_timeout. If it is your own, give the call its tx. Otherwise keep transactions that call the limiter short, or raise it.',
  '57014':
    'The statement was cancelled, by statement_timeout or by somebody: look for what held the row or kept the server busy.',
}

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

/** What Supavisor, and then PgCat, ends a connection with, whatever the reason. */
const OF_POOLERS = /^(XX000|58000) FATAL$/

function codeFor(sqlState: string | undefined, cause: unknown): DatabaseCode {
  // postgres.js has a severity that is not translated. Supavisor sends only the other one.
  const { severity_local, severity = severity_local } = Object(cause)
  if (sqlState === undefined || OF_POOLERS.test(`${sqlState} ${severity}`)) return 'OUTCOME_UNKNOWN'
  return BY_SQL_STATE[sqlState] ?? (sqlState.startsWith('08') ? 'OUTCOME_UNKNOWN' : 'DATABASE')
}

/** How many errors may wrap one another. Drizzle, a pool and `fetch` each wrap the error below. */
const MAX_DEPTH = 5

/**
 * The most specific error: the first one that has a code. Otherwise the error that Drizzle wraps, because
 * Drizzle writes the parameters into its own message.
 */
function mostSpecific(error: unknown): unknown {
  let each = error
  for (let depth = 0; depth < MAX_DEPTH && each !== undefined; depth++) {
    if (codeOf(each) !== undefined || wasNotConnected(each)) return each
    each = below(each)
  }
  return below(error) ?? error
}

/**
 * The error that another one wraps. Neon's driver wraps the error of `fetch` as `sourceError`. Over a WebSocket
 * it throws an event, which has the error in `error`.
 */
function below(wrapping: unknown): unknown {
  const { cause, sourceError, error } = Object(wrapping)
  return cause ?? sourceError ?? error
}

/** Whether a standby refuses an UNLOGGED table, which it does before it can say that it is read-only. */
function isOfStandby(error: unknown): boolean {
  return sqlStateOf(error) === FEATURE_NOT_SUPPORTED && Object(error).routine === 'get_relation_info'
}

/** The SQLSTATE of an error. Bun has it in `errno`, where Node has numbers. */
function sqlStateOf(error: unknown): string | undefined {
  const errno = error instanceof Error && 'errno' in error ? error.errno : undefined
  // Every SQLSTATE has a digit, so EPIPE is not one. Prisma has codes such as P1017.
  return [codeOf(error), errno].find(
    (code): code is string => typeof code === 'string' && /^(?=.*\d)(?!P[1-9])[0-9A-Z]{5}$/.test(code),
  )
}

function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' ? code : undefined
}

/** Codes of Node, its fetch and postgres.js for a connection that was not made. */
const CODES: ReadonlySet<unknown> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'CONNECT_TIMEOUT', 'CONNECTION_ENDED', 'ERR_INVALID_URL'],
])

/**
 * Codes of Node for a server certificate that was not accepted.
 * https://nodejs.org/api/tls.html#x509-certificate-error-codes
 */
const CERTIFICATE = /CERT|^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/

/** The system calls that make a connection. A reset or timeout in one of these comes before any statement. */
const SYSCALLS: ReadonlySet<unknown> = new Set(['connect', 'getaddrinfo'])

/**
 * Whether the error has a code of a connection that was not made. No message proves that: anybody can raise an
 * error with any message, and a driver may report a later error than the one of the statement.
 */
function wasNotConnected(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, syscall, errors }: { [name: string]: unknown } = Object(error)
  // Node tries every address of a host.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(wasNotConnected)
  return CODES.has(code) || CERTIFICATE.test(String(code)) || SYSCALLS.has(syscall)
}
