import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { takeBatch } from '../../src/runtime/batch.ts'

const limiter = Ratelimit.fixedWindow(10, '1m')
const namespace = { prefix: 'p', clock: () => null }

function call(key: string, rate = 1, own = limiter) {
  return { namespace, key, rate, limiter: own }
}

/** Keys, rates and numbers of the groups, and the keys left for later. */
function taken(
  calls: readonly ReturnType<typeof call>[],
  underWay: readonly ReturnType<typeof call>[] = [],
  most = 10,
) {
  const { groups, rest } = takeBatch(
    calls,
    underWay.map((each) => ({ ...each, calls: 1 })),
    most,
  )
  return [
    groups.map(({ key, rate, calls: number }) => `${key} ${rate} x${number}`),
    rest.map(({ key, rate }) => `${key} ${rate}`),
  ]
}

describe('what one statement decides', () => {
  test('equal calls are one group, also under limits that are merely equal', () => {
    expect(taken([call('a'), call('b'), call('a'), call('a', 1, Ratelimit.fixedWindow(10, 60_000))])).toEqual(
      [['a 1 x3', 'b 1 x1'], []],
    )
  })

  test('an unequal call of a key waits, and so do all later ones of the key', () => {
    expect(taken([call('a'), call('a', 2), call('b'), call('a')])).toEqual([
      ['a 1 x1', 'b 1 x1'],
      ['a 2', 'a 1'],
    ])
  })

  test('a call waits for one of its key that is under way, so that a locked row holds up one statement only', () => {
    expect(taken([call('a', 2), call('a'), call('b')], [call('a')])).toEqual([['b 1 x1'], ['a 2', 'a 1']])
  })

  test('one algorithm a statement; another waits with the later calls of its keys', () => {
    const bucket = Ratelimit.tokenBucket(1, '1s', 10)
    expect(taken([call('a'), call('b', 1, bucket), call('c'), call('b')])).toEqual([
      ['a 1 x1', 'c 1 x1'],
      ['b 1', 'b 1'],
    ])
  })

  test('no more keys than it may take', () => {
    expect(taken([call('a'), call('b'), call('c'), call('a')], [], 2)).toEqual([
      ['a 1 x2', 'b 1 x1'],
      ['c 1'],
    ])
  })

  test('nothing, when all have to wait', () => {
    expect(taken([call('a', 2)], [call('a')])).toEqual([[], ['a 2']])
  })
})
