import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Limiter, limitAll, Ratelimit, type Reserved } from '../../../src/index.ts'
import { Quota, reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { kinds, oneOfEachKind, quotaOn } from '../../support/ten.ts'

// A limiter that meets a row of another plan can be set to refuse.

const database = useDatabase()
const code = 'OTHER_PLAN'

/** Calls of a key that holds a row of another plan. */
const CALLS: Readonly<Record<string, (quota: Quota) => Promise<unknown>>> = {
  limit: (quota) => quota.limit('key'),
  'a look': (quota) => quota.limit('key', { rate: 0 }),
  'a refund': (quota) => quota.limit('key', { rate: -1 }),
  force: (quota) => quota.limit('key', { force: true }),
  atLeast: (quota) => quota.limit('key', { rate: 3, atLeast: 1 }),
  tx: (quota) => database.db.transaction((tx) => quota.limit('key', { tx })),
  blockUntilReady: (quota) => quota.blockUntilReady('key', 0),
  getRemaining: (quota) => quota.getRemaining('key'),
  getRemainingAll: (quota) => quota.getRemainingAll(['new', 'key']),
  reserve: (quota) => quota.reserve('key'),
  limitAll: (quota) => limitAll(['new', 'key'].map((key) => ({ ratelimit: quota, key }))),
  'limitAll in a transaction': (quota) =>
    database.db.transaction(async (tx) => {
      const requests = ['new', 'key'].map((key) => ({ ratelimit: quota, key }))
      const refused = await limitAll(requests, { tx }).catch((error: unknown) => error)
      return Promise.resolve().then(() => {
        throw refused
      })
    }),
  spend: (quota) => spend([{ ratelimit: quota, key: 'key' }], { rate: 1 }),
}

const pairs = oneOfEachKind.flatMap((one) =>
  oneOfEachKind.filter((other) => other !== one).map((other) => ({ one, other })),
)

/** Windows of other lengths, by the length that has written the row. */
const LENGTHS: readonly (readonly [string, Limiter, Limiter])[] = [
  ['a shorter fixed window', Ratelimit.fixedWindow(10, '10h'), Ratelimit.fixedWindow(10, '9h')],
  ['a longer fixed window', Ratelimit.fixedWindow(10, '10h'), Ratelimit.fixedWindow(10, '30d')],
  ['a shorter sliding window', Ratelimit.slidingWindow(10, '10h'), Ratelimit.slidingWindow(10, '1h')],
  ['a longer sliding window', Ratelimit.slidingWindow(10, '10h'), Ratelimit.slidingWindow(10, '11h')],
  ['a day of the calendar', calendarWindow(10, 'month'), calendarWindow(10, 'day')],
  ['a month of the calendar', calendarWindow(10, 'day'), calendarWindow(10, 'month')],
  [
    'another time zone',
    calendarWindow(10, 'month'),
    calendarWindow(10, 'month', { timeZone: 'Asia/Kathmandu' }),
  ],
]

describe.each([
  ...pairs.map(({ one, other }) => [`${other.name} on ${one.name}`, one.limiter, other.limiter] as const),
  ...LENGTHS,
])('%s', (name, before, after) => {
  test('every call is refused, and nothing is written', async () => {
    const { clock, config, quota, rows } = quotaOn(database, before)
    await quota.limit('key', { rate: 9 })
    const stored = await rows()
    const strict = new Quota({ ...config, limiter: after, onOtherPlan: 'throw' })
    for (const [how, call] of Object.entries(CALLS)) {
      await expect(call(strict), how).rejects.toMatchObject({ code })
    }
    expect(await rows()).toEqual(stored)
    const others = Array.from({ length: 9 }, (_each, i) => strict.limit(`other ${i}`))
    const both = await Promise.allSettled([strict.limit('key'), ...others])
    expect(both.map(({ status }) => status)).toEqual(['rejected', ...others.map(() => 'fulfilled')])

    // A row that has expired is as good as none.
    const [row] = (await database.rows(
      'select expires_at from rate_limit_ephemeral where prefix = $1 and key = $2',
      [config.prefix, 'key'],
    )) as [{ expires_at: string | Date }]
    clock.ms = new Date(row.expires_at).getTime() - 1
    // The last day of a month, and the months of zones, are over by then under both plans.
    const areOver = name === 'another time zone' || name === 'a month of the calendar'
    if (!areOver) await expect(strict.limit('key')).rejects.toMatchObject({ code })
    clock.advance(1)
    expect(await strict.limit('key')).toMatchObject({ success: true })
  })

  test('after a reset the row begins under the new plan', async () => {
    const { config, quota } = quotaOn(database, before)
    await quota.limit('key', { rate: 9 })
    const strict = new Quota({ ...config, limiter: after, onOtherPlan: 'throw' })
    await strict.resetUsedTokens('key')
    expect(await strict.limit('key')).toMatchObject({ success: true, remaining: 9 })
  })

  test('without a limiter, a commit does not start the row again', async () => {
    const { config, quota, rows } = quotaOn(database, before)
    const reserved = await quota.reserve('key', { rate: 5 })
    const together = await reserveAll([{ ratelimit: quota, key: 'key' }])
    if (!(reserved.success && together.success)) throw new Error('the example is wrong')
    await quota.resetUsedTokens('key')
    const present = new Quota({ ...config, limiter: after })
    await present.limit('key', { rate: 7 })
    const stored = await rows()
    for (const settle of [() => reserved.commit(6), () => reserved.release(), () => together.commit([2])]) {
      await expect(settle()).rejects.toMatchObject({ code })
    }
    expect(await rows()).toEqual(stored)
    expect(await reserved.commit(6, { limiter: after })).toMatchObject({ success: true })
    expect((await present.getRemaining('key')).used).toBeGreaterThanOrEqual(7)
  })
})

describe.each(kinds)('$name', ({ limiter, of }) => {
  test('its own rows are never refused, whatever the time and the size of the plan', async () => {
    const { clock, quota } = quotaOn(database, limiter, { onOtherPlan: 'throw' })
    const larger = of(20, '1h').limiter
    const isSameLength = limiter.windowMs === larger.windowMs
    for (let calls = 0; calls < 40; calls++) {
      const answer = await quota.limit('key', { rate: 1 + (calls % 4), force: calls % 7 === 0 })
      const later = [1, 3_600_000, answer.reset - clock.ms, answer.reset - clock.ms - 1, 86_400_000 * 3]
      clock.advance(later[calls % later.length] as number)
      if (isSameLength) await quota.limit('key', { limiter: larger })
      const reserved: Reserved = await quota.reserve('key')
      if (reserved.success) await reserved.commit(2)
    }
  })
})
