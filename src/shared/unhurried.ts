import { Timeout } from '../kernel/engine/bounds.ts'

/**
 * The bounds of calls that nobody waits for, such as those that give back. They have all the time that a slow
 * database needs, but a statement on a dead connection does not keep its slot.
 */
export const UNHURRIED: { readonly time: Timeout } = { time: new Timeout(60_000) }
