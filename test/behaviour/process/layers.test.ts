import { describe, expect, test, vi } from 'vitest'
import {
  type DecisionMessage,
  type ErrorMessage,
  type Layer,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
} from '../../../src/index.ts'
import { reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
useFakeTime()

let limits = 0

/** A limiter of two an hour. */
function limitWith(use: readonly Layer[], options: Partial<Pick<RatelimitConfig, 'db' | 'onError'>> = {}) {
  const config = { db: database.db, limiter: Ratelimit.fixedWindow(2, '1h'), prefix: `layers ${limits++}` }
  return new Ratelimit({ cleanupProbability: 0, ...config, ...options, use } as RatelimitConfig)
}

/** A layer that remembers what it was told. */
function listener(name = 'listener') {
  const decisions: DecisionMessage[] = []
  const failures: ErrorMessage[] = []
  let closed = 0
  const layer: Layer = {
    name,
    decided: (decision) => void decisions.push(decision),
    failed: (failure) => void failures.push(failure),
    close: () => void closed++,
  }
  return { layer, decisions, failures, closed: () => closed }
}

/** A database that is away. */
function away() {
  return watch(database.db, () => {
    throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' })
  }).db
}

describe('a layer gets to know', () => {
  test('each decision, alone, in a transaction, in a list and from memory', async () => {
    const { layer, decisions, failures } = listener()
    const ratelimit = limitWith([layer])
    const { prefix } = ratelimit
    await ratelimit.limit('a', { rate: 2 })
    await ratelimit.limit('a')
    await database.db.transaction((tx) => ratelimit.limit('b', { tx }))
    await ratelimit.blockUntilReady('c', 0)
    await ratelimit.reserve('d')
    await reserveAll([{ ratelimit, key: 'e' }])
    await spend([{ ratelimit, key: 'f' }], { rate: 2 })
    await ratelimit.limit('g', { once: { id: 'event', for: '1d' } })
    expect(decisions).toMatchObject([
      { prefix, key: 'a', rate: 2, success: true, limit: 2, remaining: 0, joined: false, degraded: false },
      { prefix, key: 'a', rate: 1, success: false, joined: false },
      { prefix, key: 'b', rate: 1, success: true, joined: true },
      ...['c', 'd', 'e'].map((key) => ({ prefix, key, rate: 1, success: true, joined: false })),
      { prefix, key: 'f', rate: 2, success: true },
      { prefix, key: 'g', rate: 1, success: true },
    ])
    expect(failures).toEqual([])
  })

  test('the limits of its own limiter, in a call of several', async () => {
    const [mine, others] = [listener(), listener()]
    const [first, second] = [limitWith([mine.layer]), limitWith([others.layer])]
    await limitAll([
      { ratelimit: first, key: 'a' },
      { ratelimit: second, key: 'b', rate: 3 },
    ])
    expect(mine.decisions).toMatchObject([{ prefix: first.prefix, key: 'a' }])
    expect(others.decisions).toMatchObject([{ prefix: second.prefix, key: 'b', success: false }])
  })

  test('the calls of all limiters that it is in', async () => {
    const { layer, decisions, closed } = listener()
    const [first, second] = [limitWith([layer]), limitWith([layer])]
    await first.limit('a')
    await second.limit('a')
    expect(decisions.map(({ prefix }) => prefix)).toEqual([first.prefix, second.prefix])
    await first.close()
    await second.close()
    expect(closed()).toBe(2)
  })

  test('the error of a call that fails, and of one that onError answers', async () => {
    const { layer, decisions, failures } = listener()
    const failing = limitWith([layer], { db: away() })
    const error = await errorOf(() => failing.limit('a'))
    expect(failures).toMatchObject([{ prefix: failing.prefix, key: 'a', error: { code: error.code } }])
    expect(decisions).toEqual([])
    const allowing = limitWith([layer], { db: away(), onError: 'allow' })
    await allowing.limit('b')
    expect(failures.slice(1)).toMatchObject([
      { prefix: allowing.prefix, key: 'b', error: { code: error.code } },
    ])
    expect(decisions).toMatchObject([{ key: 'b', success: true, degraded: true }])
  })
})

test('what a layer throws or rejects changes no answer and no error', async () => {
  const fails = () => {
    throw new Error('of the layer')
  }
  const rejects = async () => fails()
  const { layer, decisions } = listener()
  const use = [
    { name: 'throws', decided: fails, failed: fails, close: fails },
    { name: 'rejects', decided: rejects, failed: rejects, close: rejects },
    layer,
  ]
  const ratelimit = limitWith(use)
  expect(await ratelimit.limit('a')).toMatchObject({ success: true, remaining: 1 })
  expect(await ratelimit.limit('a', { rate: 2 })).toMatchObject({ success: false })
  expect(decisions).toHaveLength(2)
  await ratelimit.close()
  expect(await errorOf(() => limitWith(use, { db: away() }).limit('a'))).toMatchObject({
    code: 'UNREACHABLE',
  })
})

describe('close of a limiter', () => {
  test('waits for each layer', async () => {
    let isDone = false
    let end = () => {}
    const ending = new Promise<void>((resolve) => {
      end = resolve
    })
    const ratelimit = limitWith([{ name: 'slow', close: () => ending.then(() => (isDone = true)) }])
    const closed = ratelimit.close()
    end()
    await closed
    expect(isDone).toBe(true)
  })

  test('waits ten seconds for a layer that does not end', async () => {
    fakeTime()
    let isClosed = false
    const closing = limitWith([{ name: 'stuck', close: () => new Promise(() => {}) }])
      .close()
      .then(() => {
        isClosed = true
      })
    await vi.advanceTimersByTimeAsync(9_999)
    expect(isClosed).toBe(false)
    await vi.advanceTimersByTimeAsync(1)
    await closing
  })
})

const LOG: Layer = { name: 'log', decided: () => {} }

test.each<[string, unknown]>([
  ['no list', LOG],
  ['null', null],
  ['a hole', Array.from({ length: 1 })],
  ['a function that was not called', [() => LOG]],
  ['a layer without a name', [{ decided: () => {} }]],
  ['a layer with a text to call', [{ name: 'log', decided: 'log', close: () => {} }]],
  ['a layer that does nothing', [{ name: 'log', decide: () => {} }]],
  ['two layers of one name', [LOG, { ...LOG }]],
])('use refuses %s', (_, use) => {
  const make = () => limitWith(use as Layer[])
  expect(make).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  expect(make).toThrow('must be a list of layers')
})
