import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { Queue } from '../../src/runtime/queue.ts'
import { batchOf } from '../../src/statements/input.ts'

const limiter = Ratelimit.fixedWindow(10, '1m')
const namespace = { prefix: 'p', clock: () => null }

function call(key: string, rate = 1, own = limiter) {
  return { namespace, key, rate, limiter: own, force: false, paidFrom: null, thresholds: [], dryRun: false }
}

function queueOf(...calls: ReturnType<typeof call>[]) {
  const queue = new Queue<ReturnType<typeof call>>()
  for (const each of calls) queue.add(each)
  return queue
}

/** Keys, rates and numbers of the groups that one statement after the other takes. */
function statements(queue: Queue<ReturnType<typeof call>>, most = 10) {
  const taken: string[][] = []
  while (queue.size > 0) {
    const groups = queue.take(most)
    taken.push(groups.map(({ key, rate, calls }) => `${key} ${rate} x${calls}`))
    queue.done(groups)
  }
  return taken
}

describe('what one statement decides', () => {
  test('equal calls are one group, also under limits that are merely equal', () => {
    const queue = queueOf(call('a'), call('b'), call('a'), call('a', 1, Ratelimit.fixedWindow(10, 60_000)))
    expect(statements(queue)).toEqual([['a 1 x3', 'b 1 x1']])
  })

  test('an unequal call of a key waits, and so do all later ones of the key', () => {
    const queue = queueOf(call('a'), call('a', 2), call('b'), call('a'))
    expect(statements(queue)).toEqual([['a 1 x1', 'b 1 x1'], ['a 2 x1'], ['a 1 x1']])
  })

  test('a call waits for one of its key that is under way, so that a locked row holds up one statement only', () => {
    const queue = queueOf(call('a'))
    const underWay = queue.take(10)
    for (const each of [call('a', 2), call('a'), call('b')]) queue.add(each)
    expect(queue.take(10).map(({ key }) => key)).toEqual(['b'])
    expect(queue.take(10)).toEqual([])
    queue.done(underWay)
    expect(statements(queue)).toEqual([['a 2 x1'], ['a 1 x1']])
  })

  test('one algorithm a statement; another waits with the later calls of its keys', () => {
    const bucket = Ratelimit.tokenBucket(1, '1s', 10)
    const queue = queueOf(call('a'), call('b', 1, bucket), call('c'), call('b'))
    expect(statements(queue)).toEqual([['a 1 x1', 'c 1 x1'], ['b 1 x1'], ['b 1 x1']])
  })

  test('no more keys than it may take; a key that goes on comes after those that wait', () => {
    const queue = queueOf(call('a'), call('b'), call('c'), call('a', 2))
    expect(statements(queue, 2)).toEqual([
      ['a 1 x1', 'b 1 x1'],
      ['c 1 x1', 'a 2 x1'],
    ])
  })

  test('the size is that of the calls that wait for a statement', () => {
    const queue = queueOf(call('a'), call('a'), call('b'))
    expect(queue.size).toBe(3)
    queue.take(1)
    expect(queue.size).toBe(1)
  })
})

test('arrays are written as Postgres reads them', () => {
  const calls = [
    { key: 'plain', rate: 1 },
    { key: '', rate: null },
    { key: 'NULL', rate: 1e-7 },
    { key: ' {"a", \\b\\}\n', rate: 1e21 },
  ]
  expect(batchOf(calls)).toEqual({
    key: '{"plain","","NULL"," {\\"a\\", \\\\b\\\\}\n"}',
    rate: '{1,NULL,1e-7,1e+21}',
  })
})
