/** The prefix of rows that block keys ends with this. No limiter has such a prefix. */
export const BLOCKED = ' [blocked]'
