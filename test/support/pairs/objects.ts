import { Members } from 'drizzle-ratelimit/members'
import { Semaphore } from 'drizzle-ratelimit/semaphore'
import { expect } from 'vitest'
import type { Untyped } from './calls.ts'

// Objects that charge no units. They have calls of their own, and few of the options of a limiter.

/** Makes all calls of an object on a key of its own, in a transaction if there is one. */
export const OBJECTS: Readonly<Record<string, (config: Untyped, tx: Untyped) => Promise<void>>> = {
  async Members(config, tx) {
    const members = new Members({ limit: 1, window: '1h', ...config })
    expect(await members.add('key', 'one', { tx })).toMatchObject({ success: true, isNew: true })
    expect(await members.add('key', 'one', { tx })).toMatchObject({ success: true, isNew: false })
    expect(await members.add('key', 'other', { tx })).toMatchObject({ success: false })
    expect(await members.list('key', { tx })).toHaveLength(1)
    expect(await members.remove('key', 'one', { tx })).toBe(true)
    expect(await members.has('key', 'one', { tx })).toBe(false)
    expect(await members.add('key', 'other', { tx })).toMatchObject({ success: true, isNew: true })
  },
  async Semaphore(config, tx) {
    const slots = new Semaphore({ limit: 1, lease: '1m', ...config })
    const lease = await slots.acquire('key', { tx })
    if (!lease.success) throw new Error('The slot was not free.')
    expect(await slots.holders('key', { tx })).toHaveLength(1)
    // A transaction that holds the slot gets it again.
    expect(await slots.acquire('key', { tx })).toMatchObject({ success: tx !== undefined })
    await lease.release()
    expect(await slots.acquire('key', { tx })).toMatchObject({ success: true })
  },
}

/** The options of a limiter that each of them takes. docs/options.md names them. */
export const TAKEN: readonly string[] = [
  ...['durable', 'synchronousCommit', 'tables', 'cleanupProbability', 'autoMigrate', 'timeout', 'waitUntil'],
  'hashKeys',
]
