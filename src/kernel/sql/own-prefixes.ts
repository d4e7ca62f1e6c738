// The prefixes of rows that the package keeps next to a limiter's own rows. No limiter has one of these by
// accident.

/** The prefix of ids begins with this. The prefix of their limiter follows. Lists of keys leave these out. */
export const ID_PREFIX = 'drizzle-ratelimit/once/'

/** The same for the names of reservations. */
export const RESERVED_PREFIX = 'drizzle-ratelimit/reserved/'

/**
 * The same for rows that say what each of several rows has paid of such an estimate. It sorts before the prefix
 * of names, so that a list writes them first, and none of them is remembered for longer than the name.
 */
export const SHARE_PREFIX = 'drizzle-ratelimit/parts/'

/** The prefix of rows that block keys ends with this. No limiter may have such a prefix. */
export const BLOCKED = ' [blocked]'

/** The prefix of rows that count denials ends with this. No limiter has such a prefix either. */
export const DENIED = ' [denied]'
