import { type Duration, parseDuration } from '../kernel/duration.ts'
import { blockKey, unblockKey } from '../kernel/engine/block-key.ts'
import { reset } from '../kernel/engine/reset.ts'
import type { Act } from '../kernel/engine/shown.ts'
import { isPrepaid } from '../kernel/options/validate.ts'
import { callOn, type Rows } from './keys.ts'

// What can be done with a key of any limiter. What others offer is in `ShownParts`.

const LENGTHS = [
  ['15m', '15 minutes'],
  ['1h', 'an hour'],
  ['1d', 'a day'],
  ['7d', '7 days'],
  ['30d', '30 days'],
  ['365d', 'a year'],
] as const

/** Resets and blocks, where the limit has them. */
export function actsOf(rows: Rows): readonly Act[] {
  const { checker } = rows.handle
  const { limiter, blocks } = checker.terms
  const isLockout = limiter.algorithm.numbers.block !== undefined
  // A gate blocks for as long as is asked.
  const longest = blocks ? Number.POSITIVE_INFINITY : (limiter.params['maxMs'] ?? 0)
  const lengths = LENGTHS.filter(([length]) => parseDuration(length, 'The block') <= longest)
  const called = async (key: string) => ({ checker, call: await callOn(rows, key) })
  const unblock: Act = {
    name: 'unblock',
    needs: 'block',
    label: 'Unblock',
    about: isLockout ? 'End the block, and forget the failures.' : 'End the block. What was used stays used.',
    fields: [],
    isFor: (shown) => shown?.blockedUntil !== undefined,
    run: async (key) => {
      await unblockKey(await called(key), undefined)
      return { change: 'It is not blocked any more.' }
    },
  }
  const block: Act = {
    name: 'block',
    needs: 'block',
    label: 'Block',
    about: 'Deny every call, whatever was used. A block that is under way is replaced.',
    fields: [{ name: 'for', label: 'For', of: lengths }],
    run: async (key, { for: length = '' }) => {
      await blockKey(await called(key), length as Duration, undefined)
      return { change: `It is blocked for ${new Map<string, string>(LENGTHS).get(length) ?? length}.` }
    },
  }
  const whole: Act = {
    name: 'reset',
    needs: 'reset',
    label: 'Reset',
    about: 'Forget what was used: the whole limit again.',
    fields: [],
    run: async (key) => {
      await reset(checker, await callOn(rows, key), undefined)
      return { change: 'It has its whole limit again.' }
    },
  }
  return [
    ...(isLockout || blocks ? [block, unblock] : []),
    // A reset would give back used credits, and forget how often a lockout has blocked.
    ...(isPrepaid(limiter) || isLockout ? [] : [whole]),
  ]
}
