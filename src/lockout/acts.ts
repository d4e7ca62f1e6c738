import { type Duration, parseDuration } from '../kernel/duration.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { inLength } from '../shared/readable.ts'
import type { Act } from '../shared/shown.ts'
import { blockKey, unblockKey } from './block-key.ts'

const LENGTHS = [
  ['15m', '15 minutes'],
  ['1h', 'an hour'],
  ['1d', 'a day'],
  ['7d', '7 days'],
  ['30d', '30 days'],
  ['365d', 'a year'],
] as const

/** What people can do with the keys of a limiter: block them, and end blocks. */
export function actsOf(
  { terms: { limiter, gate } }: Checker,
  callOn: (key: string) => Promise<LimiterCall>,
): readonly Act[] {
  // A gate blocks for as long as is asked.
  const longest = gate ? Number.POSITIVE_INFINITY : (limiter.params['maxMs'] ?? 0)
  const allowed = LENGTHS.filter(([length]) => parseDuration(length, 'The block') <= longest)
  const lengths = new Map<string, string>(
    allowed.length === 0 ? [[`${longest}ms`, inLength(longest)]] : allowed,
  )
  const unblock: Act = {
    name: 'unblock',
    needs: 'block',
    label: 'Unblock',
    about: gate ? 'End the block. What was used stays used.' : 'End the block, and forget the failures.',
    fields: [],
    isFor: (shown) => shown?.blockedUntil !== undefined,
    run: async (key) => {
      await unblockKey(await callOn(key), undefined)
      return { change: 'It is not blocked any more.' }
    },
  }
  const block: Act = {
    name: 'block',
    needs: 'block',
    label: 'Block',
    about: 'Deny every call, whatever was used. A block that is under way is replaced.',
    fields: [{ name: 'for', label: 'For', of: [...lengths] }],
    run: async (key, { for: length = '' }) => {
      await blockKey(await callOn(key), length as Duration, undefined)
      return { change: `It is blocked for ${lengths.get(length) ?? length}.` }
    },
  }
  return [block, unblock]
}
