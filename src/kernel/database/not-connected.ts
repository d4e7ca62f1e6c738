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

interface DriverError extends Error {
  readonly code?: unknown
  readonly syscall?: unknown
  readonly errors?: unknown
}

/**
 * Whether the error has a code of a connection that was not made. No message proves that: anybody can raise an
 * error with any message, and a driver may report a later error than the one of the statement.
 */
export function wasNotConnected(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, syscall, errors } = error as DriverError
  // Node tries every address of a host.
  if (Array.isArray(errors) && errors.length > 0) return errors.every(wasNotConnected)
  return CODES.has(code) || CERTIFICATE.test(String(code)) || SYSCALLS.has(syscall)
}
