import { expect, test } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { Ratelimit } from '../../src/index.ts'
import { type Call, kindOf, type Request, sameRequest } from '../../src/kernel/store/call.ts'
import { requestOf } from '../support/requests.ts'
import { stored } from '../support/stored.ts'

// Which requests share a statement, and which are decided as one.

const request = requestOf({
  key: 'key',
  limiter: stored(calendarWindow(10, 'month')),
  atLeast: 1,
  reserved: 1,
})

/**
 * For each field, the calls that must agree in it: all calls of a `'queue'`, the calls that share a
 * `'statement'`, or only the equal calls of a `'group'`. A new field does not compile without an entry.
 */
const AGREEMENT: Readonly<Record<keyof Call, 'queue' | 'statement' | 'group'>> = {
  key: 'queue',
  limiter: 'group',
  purpose: 'statement',
  refusesOther: 'statement',
  rate: 'group',
  paidWindowStart: 'group',
  refundableUntil: 'group',
  within: 'group',
  atLeast: 'group',
  reserved: 'group',
  payer: 'group',
}

/** Another value for each field. */
const OTHER: Request = {
  key: 'other',
  limiter: stored(calendarWindow(20, 'month')),
  purpose: 'adjust',
  refusesOther: true,
  rate: 2,
  paidWindowStart: 1,
  refundableUntil: 1,
  within: 1,
  atLeast: 2,
  reserved: 2,
  payer: 'other',
}

test.each(Object.entries(AGREEMENT))('requests that differ in %s agree as the table says', (field, agree) => {
  const other = { ...request, [field]: OTHER[field as keyof Request] }
  expect(kindOf(request) === kindOf(other)).toBe(agree !== 'statement')
  expect(sameRequest(request, other)).toBe(agree === 'queue')
})

test.each([{ reserved: 0 }, { reserved: -1 }])(
  'a request with and one without share no statement: %o',
  (own) => {
    expect(kindOf(request)).not.toBe(kindOf({ ...request, ...own }))
    expect(sameRequest(request, { ...request, ...own })).toBe(false)
  },
)

test.each([Ratelimit.fixedWindow(10, '1h'), Ratelimit.tokenBucket(10, '1h', 10)])(
  'a request of another algorithm shares no statement: %o',
  (limiter) => {
    expect(kindOf(request)).not.toBe(kindOf({ ...request, limiter: stored(limiter) }))
  },
)

test('a bucket that does not start full shares no statement with one that does', () => {
  const bucket = (initialTokens: number) => {
    const limiter = Ratelimit.tokenBucket(10, '1h', 10, { initialTokens })
    return requestOf({ key: 'key', limiter: stored(limiter) })
  }
  expect(kindOf(bucket(1))).toBe(kindOf(bucket(2)))
  expect(kindOf(bucket(1))).not.toBe(kindOf(bucket(10)))
})
