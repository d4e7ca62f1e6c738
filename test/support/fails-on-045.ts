import { test } from 'vitest'

/**
 * A test of what the transaction of Drizzle 0.45 does wrong and that of 1.0 does not: it listens to no errors
 * of its connection, so that the process ends, and it loses the connection when BEGIN fails.
 */
export const failsOn045: typeof test.fails = process.env['DRIZZLE'] === '1.0' ? test : test.fails
