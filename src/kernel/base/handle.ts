/**
 * Where the package's own values keep what only the package uses.
 *
 * A process may have two copies of the package, of ES modules and of CommonJS. They share the symbol. Another
 * version has a symbol of its own, because its parts may differ.
 */
export const HANDLE: unique symbol = Symbol.for('drizzle-ratelimit@0.2.0')
