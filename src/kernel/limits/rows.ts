/**
 * The columns of each algorithm. A row does not name its algorithm: its filled columns identify it, so no two
 * algorithms have the same columns. In the `prevCount` of a bucket stands until when starts are promised.
 *
 * Where a row has a `count`, it is what was used. `usage` ranks rows of other algorithms by it.
 */
export const ROWS = {
  tokenBucket: { columns: ['tokens', 'lastRefill'], optional: ['prevCount'], datedBy: 'lastRefill' },
  gcra: { columns: ['tokens', 'windowStart'], optional: ['prevCount'], datedBy: 'windowStart' },
  fixedWindow: { columns: ['count', 'windowStart'], datedBy: 'windowStart', hasPeriods: true },
  slidingWindow: { columns: ['count', 'prevCount', 'windowStart'], datedBy: 'windowStart' },
  calendarWindow: {
    columns: ['count', 'prevCount', 'windowStart', 'tokens'],
    datedBy: 'windowStart',
    hasPeriods: true,
  },
  balance: { columns: ['count', 'prevCount', 'lastRefill', 'tokens'], datedBy: 'lastRefill' },
  lockout: { columns: ['count', 'prevCount', 'windowStart', 'lastRefill'], datedBy: 'windowStart' },
  credits: { columns: ['count', 'prevCount', 'windowStart', 'tokens', 'lastRefill'], datedBy: 'lastRefill' },
  estimate: { columns: ['count', 'windowStart', 'tokens', 'lastRefill'], datedBy: 'lastRefill' },
  slot: { columns: ['count', 'lastRefill'], datedBy: 'lastRefill' },
  member: { columns: ['count', 'windowStart', 'lastRefill'], datedBy: 'lastRefill' },
} as const

/** The columns of an algorithm's rows. */
export type ColumnOf<Name extends keyof typeof ROWS> = (typeof ROWS)[Name]['columns'][number]
