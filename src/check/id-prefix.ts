/**
 * What the prefix of a limiter's ids begins with, in front of the limiter's own. No limiter has it by accident,
 * and no list of keys has these rows.
 */
export const ID_PREFIX = 'drizzle-ratelimit/once/'

/** The same for the names of reservations. */
export const RESERVED_PREFIX = 'drizzle-ratelimit/reserved/'
