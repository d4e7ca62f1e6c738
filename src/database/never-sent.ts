/** Codes of Node, its fetch and postgres.js for a connection that was not made. */
const CODES: ReadonlySet<unknown> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['UND_ERR_CONNECT_TIMEOUT', 'CONNECT_TIMEOUT', 'CONNECTION_ENDED', 'ERR_INVALID_URL'],
])

/**
 * Codes of Node for a server certificate that was not accepted.
 * https://nodejs.org/api/tls.html#x509-certificate-error-codes
 */
const CERTIFICATE = /CERT|^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/

/** The system calls that make a connection. A reset or timeout in one of these comes before any statement. */
const SYSCALLS: ReadonlySet<unknown> = new Set(['connect', 'getaddrinfo'])

/** Messages of drivers that come without a code. */
const MESSAGES: ReadonlySet<unknown> = new Set([
  // pg-pool
  'timeout exceeded when trying to connect',
  'Connection terminated due to connection timeout',
  'Cannot use a pool after calling end on the pool',
  // pg
  'timeout expired',
  'Client has encountered a connection error and is not queryable',
  'Client was closed and is not queryable',
  'The server does not support SSL connections',
  'There was an error establishing an SSL connection',
  // Node: fetch refuses an address, or a WebSocket cannot be opened.
  'bad port',
  'unknown scheme',
  'Received network error or non-101 status code.',
  // PGlite
  'PGlite is closing',
  'PGlite is closed',
])

/**
 * Messages of PgBouncer, with code 08P01, to clients that it rejects or that waited for a server in vain. It
 * uses the same code for other errors, and some of those come after the statement was sent.
 * https://github.com/pgbouncer/pgbouncer/blob/master/src/janitor.c
 */
const TURNED_AWAY =
  /^(unsupported startup parameter|query_wait_timeout|client_login_timeout|no more connections allowed|client connections exceeded|server login (has been failing|failed)|pgbouncer cannot connect to server|(server|pooler is) shutting down|no such (database|user)|database ".*" is disabled|(SASL|password) authentication failed|bouncer config error)/

/**
 * Beginnings of other messages: of pg if it cannot log in, for instance without a password; of Neon's driver if
 * its WebSocket cannot be opened; of Deno's fetch and WebSocket.
 */
const BEGINNINGS =
  /^(SASL: |All attempts to open a WebSocket to connect to the database failed\.|Fetch failed: Requests to port \d+ are blocked|error sending request for url \(.*\): client error \(Connect\)|Invalid URL: |Url scheme '.*' not supported|failed to connect to WebSocket)/

interface DriverError extends Error {
  readonly code?: unknown
  readonly syscall?: unknown
  readonly errors?: unknown
}

/** Whether the error proves that the statement was never sent. */
export function wasNeverSent(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, syscall, errors } = error as DriverError
  // Node tries every address of a host.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(wasNeverSent)
  return (
    CODES.has(code) ||
    CERTIFICATE.test(String(code)) ||
    SYSCALLS.has(syscall) ||
    MESSAGES.has(error.message) ||
    BEGINNINGS.test(error.message) ||
    (code === '08P01' && TURNED_AWAY.test(error.message))
  )
}
