import { pgTable, text } from 'drizzle-orm/pg-core'
import { lockout } from 'drizzle-ratelimit/lockout'
import fc from 'fast-check'
import { calendarWindow } from '../../../src/calendar/index.ts'
import {
  type Limiter,
  Ratelimit,
  rateLimitDurable,
  rateLimitEphemeral,
  rateLimitTables,
} from '../../../src/index.ts'

// What callers without types may give: what is right, so that a call gets past its first check, or anything.

export const anything: fc.Arbitrary<unknown> = fc.anything({
  withBigInt: true,
  withBoxedValues: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withObjectString: true,
  withSet: true,
  withSparseArray: true,
  withTypedArray: true,
})

/** One of these, or anything. */
export function usually(...right: readonly unknown[]): fc.Arbitrary<unknown> {
  return fc.oneof({ arbitrary: fc.constantFrom(...right), weight: 12 }, anything)
}

/** Some of these options, or anything in place of them. */
export function options(each: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<unknown> {
  return fc.oneof({ arbitrary: fc.record(each, { requiredKeys: [] }), weight: 9 }, anything)
}

/** A list of these that may have holes, or anything. */
export function list(each: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  const lists = fc.oneof({ arbitrary: fc.array(each, { maxLength: 3 }), weight: 4 }, fc.sparseArray(each))
  return fc.oneof({ arbitrary: lists, weight: 9 }, anything)
}

/** A function that returns one of these, or anything; or no function. */
export function functionTo(...right: readonly unknown[]): fc.Arbitrary<unknown> {
  return fc.oneof({ arbitrary: usually(...right).map((value) => () => value), weight: 9 }, anything)
}

export const anyKey: fc.Arbitrary<unknown> = fc.oneof(
  { arbitrary: fc.constantFrom('one', 'two'), weight: 12 },
  fc.string({ unit: 'binary' }),
  fc.string(),
  anything,
)
export const anyNumber: fc.Arbitrary<unknown> = fc.oneof(
  { arbitrary: fc.constantFrom(1, 1, 2, 0, -1), weight: 15 },
  fc.integer(),
  fc.double(),
  anything,
)
export const anySwitch: fc.Arbitrary<unknown> = usually(true, false)

/** A limit of five that refills within seconds, of each kind. */
export const LIMITERS: readonly Limiter[] = [
  Ratelimit.slidingWindow(5, '1s'),
  Ratelimit.fixedWindow(5, '1s'),
  Ratelimit.tokenBucket(1, '1s', 5),
  Ratelimit.gcra(5, '1s'),
  lockout(5, '1s', { block: '1s' }),
  calendarWindow(5, 'minute'),
  Ratelimit.unlimited(),
]
export const anyLimiter: fc.Arbitrary<unknown> = fc.oneof(
  { arbitrary: usually(...LIMITERS), weight: 20 },
  fc.record({ algorithm: anything, stored: usually(true) }),
)

const otherTable = pgTable('orgs', { id: text('id'), key: text('key') })
export const anyTable: fc.Arbitrary<unknown> = usually(rateLimitEphemeral, rateLimitDurable, otherTable)
export const anyTables: fc.Arbitrary<unknown> = fc.oneof(
  { arbitrary: fc.constant(rateLimitTables()), weight: 6 },
  { arbitrary: fc.record({ ephemeral: anyTable, durable: anyTable }), weight: 3 },
  anything,
)
/** The clock of a limiter: the present, so that no row is ahead of others, or anything. */
export const anyClock: fc.Arbitrary<unknown> = fc.oneof(
  { arbitrary: fc.constant(() => new Date()), weight: 6 },
  functionTo(new Date(Number.NaN), Number.NaN),
)
