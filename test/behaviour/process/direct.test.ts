import { AsyncLocalStorage } from 'node:async_hooks'
import { pgSchema } from 'drizzle-orm/pg-core'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import {
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  RatelimitError,
  rateLimitTables,
} from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import '../../support/loaded.ts'
import { isGate } from '../../support/runs.ts'
import { fakeTime, ownTimers, useFakeTime } from '../../support/timers.ts'
import { isTake, watch } from '../../support/watch.ts'

// `coalesce: false`: what calls must not share, and what must hold all the same.

const database = useDatabase()
useFakeTime()
const limiter = Ratelimit.fixedWindow(10, '1h')
let prefix = 0

afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

/** A limiter without coalescing, whose statements wait for what `before` returns. */
function direct(config: Partial<RatelimitConfig> = {}, before: (text: string) => unknown = () => {}) {
  const { db, statements } = watch(database.db, before)
  const ratelimit = new Ratelimit({
    ...{ db, limiter, prefix: `direct ${++prefix}`, cleanupProbability: 0, coalesce: false },
    ...config,
  } as RatelimitConfig)
  return { ratelimit, statements }
}

/** Lets a statement through when the test says so. */
function gates() {
  const waiting: (() => void)[] = []
  return {
    waiting,
    before: () => new Promise<void>((resolve) => waiting.push(resolve)),
    /** Lets all statements through that come while `work` is under way. */
    openUntil: async (work: Promise<unknown>) => {
      const opening = setInterval(() => {
        for (const open of waiting.splice(0)) open()
      })
      await work.catch(() => {})
      clearInterval(opening)
    },
  }
}

async function turns(count = 3): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise(setImmediate)
}

describe('calls share nothing but the database', () => {
  test('equal calls at once have a statement each, and stay within the limit', async () => {
    const { ratelimit, statements } = direct()
    await ratelimit.limit('key')
    statements.length = 0
    const answers = await Promise.all(Array.from({ length: 12 }, () => ratelimit.limit('key')))
    expect(statements.filter(isTake)).toHaveLength(12)
    expect(answers.filter(({ success }) => success)).toHaveLength(9)
  })

  test('all calls are sent at once, whatever their number', async () => {
    const { before, waiting, openUntil } = gates()
    const { ratelimit } = direct({}, before)
    const calls = Promise.all(Array.from({ length: 50 }, () => ratelimit.limit('key')))
    await turns()
    expect(waiting).toHaveLength(50)
    await openUntil(calls)
  })

  test('a call whose statement never ends delays no other call, even of its key', async () => {
    let isFirst = true
    const { ratelimit } = direct({}, () => {
      if (!isFirst) return undefined
      isFirst = false
      return new Promise(() => {})
    })
    // It ends after the default timeout.
    ratelimit.limit('key').catch(() => {})
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 9 })
  })

  test('a call that never ends creating the tables delays no other call', async () => {
    let isFirst = true
    const { db } = watch(database.db, () => {
      if (!isFirst) return undefined
      isFirst = false
      return new Promise(() => {})
    })
    const migrating = new Ratelimit({
      ...{ db, limiter, prefix: 'first', autoMigrate: true, coalesce: false, cleanupProbability: 0 },
      tables: rateLimitTables({ schema: pgSchema('not made yet') }),
    })
    migrating.limit('key').catch(() => {})
    expect(await migrating.limit('key')).toMatchObject({ success: true, remaining: 9 })
  })

  test.runIf(isGate)('a call that has ended makes room for another, however many there were', async () => {
    const { ratelimit } = direct({}, () => Promise.reject(Object.assign(new Error(), { code: '42P01' })))
    const codes = new Set<string>()
    for (let i = 0; i < 10_001; i++) {
      await ratelimit.limit('key').catch(({ code }: RatelimitError) => codes.add(code))
    }
    expect([...codes]).toEqual(['MISSING_TABLE'])
  })

  test('a key has 1,000 waiting calls at most, and others go on', async () => {
    const { ratelimit } = direct({}, () => new Promise(() => {}))
    const refused: unknown[] = []
    const call = (key: string) => ratelimit.limit(key).catch((error: unknown) => refused.push(error))
    for (let i = 0; i < 1_000; i++) call('many')
    call('other')
    await turns()
    expect(refused).toEqual([])
    call('many')
    await turns()
    expect(refused).toMatchObject([{ code: 'OVERLOADED', contended: true }])
  })

  test('a call that loses to another transaction is tried again', async () => {
    let losses = 3
    const { ratelimit } = direct({}, () => {
      if (losses-- > 0) throw Object.assign(new Error('deadlock'), { code: '40P01' })
    })
    expect(await ratelimit.limit('key')).toMatchObject({ success: true, remaining: 9 })
  })
})

describe('in Workers', () => {
  const sends = async (config: Partial<RatelimitConfig>) => {
    const { db, statements } = watch(database.db)
    const common = { db, limiter, prefix: `chosen ${++prefix}`, cleanupProbability: 0 }
    const ratelimit = new Ratelimit({ ...common, ...config } as RatelimitConfig)
    await ratelimit.limit('key')
    statements.length = 0
    await Promise.all([ratelimit.limit('key'), ratelimit.limit('key')])
    return statements.length
  }

  test('coalescing is off, unless it is asked for', async () => {
    expect(await sends({})).toBe(1)
    vi.stubGlobal('navigator', { userAgent: 'Cloudflare-Workers' })
    expect(await sends({})).toBe(2)
    expect(await sends({ connections: 3 })).toBe(2)
    expect(await sends({ coalesce: true })).toBe(1)
  })

  test('in another runtime coalescing is on', async () => {
    vi.stubGlobal('navigator', { userAgent: 'Node.js/22' })
    expect(await sends({})).toBe(1)
    vi.stubGlobal('navigator', undefined)
    expect(await sends({})).toBe(1)
  })
})

test.each([
  [{ coalesce: false, connections: 2 }, 'connections'],
  [{ coalesce: 'no' }, 'coalesce'],
  [{ waitUntil: Promise.resolve() }, 'waitUntil'],
])('%o is refused', (config, named) => {
  const make = () => new Ratelimit({ db: database.db, limiter, prefix: 'p', ...config } as RatelimitConfig)
  expect(make).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringMatching(named) }),
  )
})

/** Moves the clock, and fires no timer: fake timers look through all others for each that fires. */
function moveClock(): (ms: number) => void {
  const now = performance.now()
  let passedMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => now + passedMs)
  return (ms) => {
    passedMs += ms
  }
}

describe('time', () => {
  beforeEach(fakeTime)

  test('a check that the timeout ends may have been charged, and a look never is', async () => {
    const { ratelimit } = direct({ timeout: 100 }, () => new Promise(() => {}))
    const ended = Promise.allSettled([ratelimit.limit('key'), ratelimit.getRemaining('key')])
    await turns()
    vi.advanceTimersByTime(100)
    expect(await ended).toMatchObject([
      { reason: { code: 'OUTCOME_UNKNOWN' } },
      { reason: { code: 'TIMEOUT' } },
    ])
    expect(ownTimers()).toEqual([])
  })

  test('a call whose row others hold waits for it in another statement', async () => {
    const { ratelimit: plain } = direct()
    await plain.limit('held')
    const { db, statements } = watch(database.db, (text) =>
      isTake(text) && !text.includes('skip locked') ? new Promise(() => {}) : undefined,
    )
    /** The first statement finds no row that it may lock. */
    const held: typeof db = {
      ...db,
      execute: async (query) => {
        const answer = await db.execute(query)
        return isTake(statements.at(-1) ?? '') ? { rows: [] } : answer
      },
    }
    const { ratelimit } = direct({ db: held, prefix: plain.prefix, timeout: 100 })
    const ended = Promise.allSettled([ratelimit.limit('held')])
    while (statements.length < 3) await turns(1)
    vi.advanceTimersByTime(100)
    expect(await ended).toMatchObject([{ reason: { code: 'OUTCOME_UNKNOWN', contended: true } }])
  })

  test.each([
    ['looks', (ratelimit: Ratelimit) => ratelimit.getRemaining('key')],
    ['checks', (ratelimit: Ratelimit) => ratelimit.limit('key')],
  ])('after five %s that time out, one call at a time tries the database', async (_, call) => {
    const { ratelimit, statements } = direct({ timeout: 100, onError: 'allow' }, () => new Promise(() => {}))
    const ended = Promise.allSettled(Array.from({ length: 5 }, () => call(ratelimit)))
    await turns()
    vi.advanceTimersByTime(100)
    await ended
    ratelimit.limit('key')
    expect(await ratelimit.limit('key')).toMatchObject({ degraded: true })
    expect(statements).toHaveLength(6)
  })

  test('a grant that comes too late for blockUntilReady is given back, and waitUntil gets that work', async () => {
    const { before, waiting, openUntil } = gates()
    const handed: Promise<unknown>[] = []
    const { ratelimit } = direct({ waitUntil: (work) => handed.push(work) }, before)
    const ended = ratelimit.blockUntilReady('key', 100).catch((error: RatelimitError) => error.code)
    // It loads its code first.
    while (waiting.length === 0) await turns(1)
    vi.advanceTimersByTime(100)
    expect(await ended).toBe('OUTCOME_UNKNOWN')
    vi.useRealTimers()
    expect(handed).toHaveLength(1)
    await openUntil(Promise.all(handed))
    const { used } = await new Ratelimit({
      ...{ db: database.db, limiter, prefix: ratelimit.prefix },
    }).getRemaining('key')
    expect(used).toBe(0)
  })

  test('waitUntil gets the check that fails too late, and its promise resolves', async () => {
    const handed: Promise<unknown>[] = []
    let fail: ((error: Error) => void) | undefined
    const { ratelimit } = direct({ waitUntil: (work) => handed.push(work) }, () => {
      return new Promise((_, reject) => {
        fail = reject
      })
    })
    const ended = ratelimit.blockUntilReady('key', 100).catch((error: RatelimitError) => error.code)
    while (!fail) await turns(1)
    vi.advanceTimersByTime(100)
    await ended
    fail(new RatelimitError('UNREACHABLE', 'away'))
    expect(await Promise.all(handed)).toEqual([undefined])
  })

  test.runIf(isGate)(
    'at most 10,000 calls wait, and who has waited for a minute no longer counts',
    async () => {
      const pass = moveClock()
      const { ratelimit, statements } = direct({ timeout: false }, () => new Promise(() => {}))
      const refused: unknown[] = []
      let keys = 0
      const call = () => ratelimit.limit(`key ${keys++ % 20}`).catch((error: unknown) => refused.push(error))
      for (let i = 0; i < 10_002; i++) call()
      await turns()
      expect(refused).toMatchObject([{ code: 'OVERLOADED' }, { code: 'OVERLOADED' }])
      pass(59_999)
      call()
      await turns()
      expect(refused).toHaveLength(3)
      pass(1)
      call()
      await turns()
      expect(refused).toHaveLength(3)
      expect(statements).toHaveLength(10_001)
    },
  )

  test.runIf(isGate)('with coalescing no call is cut off, so it counts as long as it waits', async () => {
    const pass = moveClock()
    const { ratelimit } = direct({ coalesce: true, timeout: false }, () => new Promise(() => {}))
    const refused: unknown[] = []
    const reset = (key: string) =>
      ratelimit.resetUsedTokens(key).catch((error: unknown) => refused.push(error))
    for (let i = 0; i < 10_000; i++) reset(`key ${i % 20}`)
    await turns()
    expect(refused).toEqual([])
    pass(60_000)
    reset('one more')
    await turns()
    expect(refused).toMatchObject([{ code: 'OVERLOADED' }])
  })

  test('a sweep that was cut off is followed by another after ten seconds', async () => {
    const isSweep = (text: string) => text.includes('delete from')
    const { ratelimit, statements } = direct({ cleanupProbability: 1 }, (text) =>
      isSweep(text) ? new Promise(() => {}) : undefined,
    )
    const sweeps = async () => {
      await ratelimit.limit('key')
      await turns()
      return statements.filter(isSweep).length
    }
    expect(await sweeps()).toBe(1)
    vi.advanceTimersByTime(9_999)
    expect(await sweeps()).toBe(1)
    vi.advanceTimersByTime(1)
    expect(await sweeps()).toBe(2)
  })
})

describe.each([true, false])('waitUntil, coalesce: %s', (coalesce) => {
  const requests = new AsyncLocalStorage<string>()

  test('is given the sweep, and called from the request of the call that sweeps', async () => {
    const from: unknown[] = []
    const swept: Promise<unknown>[] = []
    const { ratelimit, statements } = direct({
      ...{ coalesce, cleanupProbability: 1 },
      waitUntil: (work) => {
        from.push(requests.getStore())
        swept.push(work)
      },
    })
    // The first call's statement decides the second one as well, where they share it.
    vi.spyOn(Math, 'random').mockReturnValueOnce(1).mockReturnValueOnce(0)
    const first = requests.run('first', () => ratelimit.limit('key'))
    const second = requests.run('second', () => ratelimit.limit('key'))
    await Promise.all([first, second])
    expect(from).toEqual(['second'])
    await Promise.all(swept)
    expect(statements.filter((text) => text.includes('delete from'))).toHaveLength(1)
  })

  test('an answer is not lost if it throws, or if the sweep fails', async () => {
    const swept: Promise<unknown>[] = []
    const config = { coalesce, cleanupProbability: 1 }
    const { ratelimit: outside } = direct({
      ...config,
      waitUntil: () => {
        throw new Error('outside of a request')
      },
    })
    expect(await outside.limit('key')).toMatchObject({ success: true })
    expect(await limitAll([{ ratelimit: outside, key: 'key' }])).toMatchObject({ success: true })
    const { ratelimit: failing } = direct(
      { ...config, waitUntil: (work: Promise<unknown>) => void swept.push(work) },
      (text) => text.includes('delete from') && Promise.reject(new Error('no')),
    )
    expect(await failing.limit('key')).toMatchObject({ success: true })
    expect(await Promise.all(swept)).toEqual([undefined])
  })
})
