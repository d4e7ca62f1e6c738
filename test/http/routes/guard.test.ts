import { lockout } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { guardOf } from '../../../src/http/guard.ts'
import { GUARD_NAMES, type GuardOptions } from '../../../src/http/options.ts'
import {
  type RatelimitConfig as Config,
  type Limiter,
  Ratelimit,
  RatelimitError,
} from '../../../src/index.ts'
import { Quota, type QuotaConfig } from '../../../src/quota/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const clock = new TestClock()

/** A request of a framework that does not exist. */
interface Context {
  readonly user?: string
  readonly method?: string
  readonly path?: string
  readonly plan?: Limiter
  readonly id?: string
}

const key = ({ user }: Context) => user
const ada: Context = { user: 'ada' }

let prefixes = 0
function limitOf(
  tokens: number,
  db = database.db as ConstructorParameters<typeof Ratelimit>[0]['db'],
): Ratelimit {
  const limiter = Ratelimit.fixedWindow(tokens, '1m')
  return new Ratelimit({
    db,
    limiter,
    prefix: `guard ${prefixes++}`,
    clock: clock.now,
    cleanupProbability: 0,
  })
}

function guard(options: GuardOptions<Context>) {
  return guardOf(options, ({ method, path = '/' }) => ({ method, paths: [path] }), GUARD_NAMES)
}

const AWAY = {
  UNREACHABLE: { code: 'ECONNREFUSED', syscall: 'connect' },
  MISSING_TABLE: { code: '42P01' },
} as const

function failing(code: keyof typeof AWAY): Ratelimit {
  const { db } = watch(database.db, () => Promise.reject(Object.assign(new Error('away'), AWAY[code])))
  return limitOf(2, db)
}

describe('one limit', () => {
  test('passes with the answer and headers, and refuses with a problem', async () => {
    const ratelimit = limitOf(1)
    const check = guard({ ratelimit, key })
    expect(await check(ada)).toMatchObject({
      success: true,
      answer: { success: true, remaining: 0, results: [{ success: true, remaining: 0 }] },
      headers: { 'RateLimit-Policy': `"${ratelimit.prefix}";q=1;w=60` },
    })
    expect(await check(ada)).toMatchObject({
      success: false,
      answer: { success: false, retryAfter: 60_000 },
      headers: { 'Retry-After': '60' },
      problem: { status: 429, retryAfterMs: 60_000, 'violated-policies': [ratelimit.prefix] },
    })
    expect(await check({ user: 'grace' })).toMatchObject({ success: true })
  })

  test.each([undefined, null, ''])(
    'a request without a key is an error, whatever onError says: %s',
    async (none) => {
      const { db, statements } = watch(database.db)
      const check = guard({ ratelimit: limitOf(1, db), key: () => none, onError: () => 'allow' })
      await expect(check(ada)).rejects.toMatchObject({ code: 'INVALID_KEY' })
      expect(statements).toEqual([])
    },
  )

  test('a request that is skipped or costs nothing runs no query and needs no key', async () => {
    const { db, statements } = watch(database.db)
    const ratelimit = limitOf(0, db)
    const none = { success: true, answer: undefined, headers: {} }
    expect(await guard({ ratelimit, key, skip: async () => true })({})).toMatchObject(none)
    expect(await guard({ ratelimit, key, rate: 0 })({})).toMatchObject(none)
    expect(await guard({ ratelimit, key, rate: () => 0 })({})).toMatchObject(none)
    expect(statements).toEqual([])
  })

  test.each([-1, Number.NaN])('a request gives nothing back: %d', async (rate) => {
    const check = guard({ ratelimit: limitOf(1), key, rate: () => rate, onError: () => 'allow' })
    await expect(check(ada)).rejects.toMatchObject({ code: 'INVALID_RATE' })
  })

  test('is checked by one statement, and the answer has the crossed thresholds', async () => {
    const { db, statements } = watch(database.db)
    const limiter = Ratelimit.fixedWindow(2, '1m')
    const ratelimit = new Quota({
      db,
      durable: false,
      limiter,
      prefix: 'crosses',
      clock: clock.now,
      thresholds: [1],
      cleanupProbability: 0,
    })
    const check = guard({ ratelimit, key })
    await check(ada)
    statements.length = 0
    expect(await check(ada)).toMatchObject({ answer: { results: [{ crossed: [1] }] } })
    expect(statements).toHaveLength(1)
  })

  test('each request may have a limiter, whose limit is in the headers', async () => {
    const ratelimit = limitOf(1)
    const check = guard({ ratelimit, key, limiter: ({ plan }) => plan })
    const plan = Ratelimit.fixedWindow(5, '1h')
    expect(await check({ user: 'ada', plan })).toMatchObject({
      answer: { limit: 5, remaining: 4 },
      headers: { 'RateLimit-Policy': `"${ratelimit.prefix}";q=5;w=3600` },
    })
    expect(await check({ user: 'grace' })).toMatchObject({ answer: { limit: 1 } })
    const unlimited = await check({ user: 'lin', plan: Ratelimit.unlimited() })
    expect(unlimited).toMatchObject({ success: true, headers: {} })
  })

  test('headers: false sends Retry-After alone', async () => {
    const check = guard({ ratelimit: limitOf(1), key, headers: false })
    expect((await check(ada)).headers).toEqual({})
    expect((await check(ada)).headers).toEqual({ 'Retry-After': '60' })
  })

  test('a list of headers sends them all, of several limits the tightest where one is shown', async () => {
    const [wide, narrow] = [limitOf(10), limitOf(1)]
    const limits = [wide, narrow].map((ratelimit) => ({ ratelimit, key }))
    const { headers } = await guard({ limits, headers: ['draft-8', 'legacy'] })(ada)
    expect(headers['RateLimit-Policy']).toBe(`"${wide.prefix}";q=10;w=60, "${narrow.prefix}";q=1;w=60`)
    expect(headers['X-RateLimit-Limit']).toBe('1')
  })

  test('a rate above the limit has no time to wait for', async () => {
    const refused = await guard({ ratelimit: limitOf(1), key, rate: 2 })(ada)
    expect(refused.headers).not.toHaveProperty('Retry-After')
    expect(refused).not.toHaveProperty('problem.retryAfterMs')
  })
})

describe('a table of rates', () => {
  const rate = { 'POST /export': 5, '/orders/:id': 3, 'GET /health': 0, '/health/live': 0 }
  test.each([
    ['POST', '/export', 5],
    ['POST', '/EXPORT/', 5],
    ['POST', '//export//', 5],
    ['post', '/%65xport', 5],
    ['GET', '/export', 1],
    ['DELETE', '/orders/:id', 3],
    ['GET', '/health', 0],
    ['GET', '/health/', 1],
    ['GET', '/health//', 1],
    ['GET', '/HEALTH', 1],
    ['GET', '/%68ealth', 1],
    ['get', '/health', 1],
    ['HEAD', '/health', 0],
    ['POST', '/health', 1],
    ['GET', '/constructor', 1],
    ['GET', '/%', 1],
    ['GET', '/health/live', 0],
    ['GET', '/health%2Flive', 1],
    [undefined, '/orders/:id', 3],
  ])('%s %s costs %d', async (method, path, cost) => {
    const passed = await guard({ ratelimit: limitOf(10), key, rate })({
      user: 'ada',
      path,
      ...(method && { method }),
    })
    expect(10 - (passed.answer?.remaining ?? 10)).toBe(cost)
  })
})

describe('several limits', () => {
  test('all limits are charged or none, the tightest answers, and the headers have all', async () => {
    const [wide, narrow] = [limitOf(10), limitOf(1)]
    const check = guard({
      limits: [
        { ratelimit: wide, key: () => 'all' },
        { ratelimit: narrow, key },
      ],
    })
    const passed = await check(ada)
    expect(passed.answer).toMatchObject({ limit: 1, results: [{ remaining: 9 }, { remaining: 0 }] })
    expect(passed.headers['RateLimit-Policy']).toBe(`"${wide.prefix}";q=10;w=60, "${narrow.prefix}";q=1;w=60`)
    expect(await check(ada)).toMatchObject({
      success: false,
      answer: { limit: 1, results: [{ success: true }, { success: false }] },
      problem: { 'violated-policies': [narrow.prefix] },
    })
    expect(await wide.getRemaining('all')).toMatchObject({ remaining: 9 })
  })

  test('a limit that the request costs nothing is left out', async () => {
    const [one, other] = [limitOf(1), limitOf(1)]
    const check = guard({
      limits: [
        { ratelimit: one, key },
        { ratelimit: other, key, rate: 0 },
      ],
    })
    expect(await check(ada)).toMatchObject({ answer: { results: [{ remaining: 0 }] } })
    expect(await other.getRemaining('ada')).toMatchObject({ remaining: 1 })
  })
})

describe.each(['one limit', 'two limits'])('requests that may come twice, with %s', (number) => {
  const setup = (db?: Config['db']) => {
    const limits = [limitOf(2, db), limitOf(2, db)].slice(0, number === 'one limit' ? 1 : 2)
    // Two processes.
    const checks = [0, 1].map(() =>
      guard({
        limits: limits.map((ratelimit) => ({ ratelimit, key })),
        once: ({ id }) => (id ? { id: `ada ${id}`, for: '1d' } : undefined),
      }),
    )
    const used = async () =>
      (await Promise.all(limits.map((each) => each.getRemaining('ada')))).map((one) => one.used)
    const [check, other] = checks as [(typeof checks)[0], (typeof checks)[0]]
    return { check, other, used, all: (units: number) => limits.map(() => units) }
  }

  test('an id is charged once, by whichever process, and the others are charged', async () => {
    const { check, other, used, all } = setup()
    const answers = await Promise.all([check, other, check].map((each) => each({ ...ada, id: '1' })))
    expect(answers.map(({ success }) => success)).toEqual([true, true, true])
    expect(answers.filter(({ answer }) => answer && 'repeated' in answer)).toHaveLength(2)
    expect(await used()).toEqual(all(1))
    expect(await check({ ...ada, id: '2' })).not.toHaveProperty('answer.repeated')
    expect(await check(ada)).toMatchObject({ success: false })
    expect(await other({ ...ada, id: '2' })).toMatchObject({ success: true, answer: { repeated: true } })
    expect(await used()).toEqual(all(2))
  })

  test('a request without an id is charged each time', async () => {
    const { check, used, all } = setup()
    for (let i = 0; i < 2; i++) await check(ada)
    expect(await used()).toEqual(all(2))
  })

  test('a denial does not use up the id', async () => {
    const { check } = setup()
    for (let i = 0; i < 2; i++) await check(ada)
    expect(await check({ ...ada, id: '1' })).toMatchObject({ success: false })
    clock.advance(60_000)
    expect(await check({ ...ada, id: '1' })).not.toHaveProperty('answer.repeated')
  })

  test('a request that is sent again after a lost answer is charged once', async () => {
    let loses = true
    const losing = {
      ...watch(database.db).db,
      execute: async (query: Parameters<typeof database.db.execute>[0]) => {
        const answer = await database.db.execute(query)
        if (loses) throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
        return answer
      },
    }
    const { check, used, all } = setup(losing)
    await expect(check({ ...ada, id: '1' })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    loses = false
    expect(await check({ ...ada, id: '1' })).toMatchObject({ success: true })
    expect(await used()).toEqual(all(1))
  })
})

describe('once', () => {
  test.each(['failures', 'successes'] as const)('cannot be combined with count: %s', (count) => {
    const options = { ratelimit: limitOf(1), key, count, once: () => undefined }
    // @ts-expect-error a request that was given back would be free when it is sent again
    expect(() => guard(options)).toThrow(/would be free/)
  })

  test('is a function, and its errors are not those of the database', async () => {
    // @ts-expect-error an id is of one request
    expect(() => guard({ ratelimit: limitOf(1), key, once: { id: 'a', for: '1d' } })).toThrow('a function')
    const once = () => Promise.reject(new Error('no header'))
    const check = guard({ ratelimit: limitOf(1), key, once, onError: () => 'allow' })
    await expect(check(ada)).rejects.toThrow('no header')
    const typo = guard({ ratelimit: limitOf(1), key, once: () => ({ id: 'a', For: '1d' }) as never })
    await expect(typo(ada)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  test('is not read for a request that costs nothing', async () => {
    const once = () => Promise.reject(new Error('no header'))
    expect(await guard({ ratelimit: limitOf(1), key, rate: 0, once })(ada)).toMatchObject({ success: true })
  })
})

describe.each(['one limit', 'two limits'])('requests that count, with %s', (number) => {
  const setup = (count: 'failures' | 'successes', tokens: number) => {
    const limits = [limitOf(tokens), limitOf(tokens)].slice(0, number === 'one limit' ? 1 : 2)
    const check = guard({ limits: limits.map((ratelimit) => ({ ratelimit, key })), count })
    const left = async () =>
      (await Promise.all(limits.map((each) => each.getRemaining('ada')))).map((one) => one.remaining)
    return { check, left, all: (remaining: number) => limits.map(() => remaining) }
  }
  const settled = async (check: ReturnType<typeof guard>, failed: boolean) => {
    const passed = await check(ada)
    if (passed.success) await passed.settle(() => failed)
    return passed.success
  }

  test('failures only', async () => {
    const { check, left, all } = setup('failures', 2)
    for (const failed of [false, false, false, true]) expect(await settled(check, failed)).toBe(true)
    expect(await left()).toEqual(all(1))
    expect(await settled(check, true)).toBe(true)
    expect(await settled(check, false)).toBe(false)
  })

  test('successes only', async () => {
    const { check, left, all } = setup('successes', 2)
    for (const failed of [true, true, true, false]) expect(await settled(check, failed)).toBe(true)
    expect(await left()).toEqual(all(1))
  })

  test('requests at the same time cannot pass together', async () => {
    const { check, left, all } = setup('failures', 5)
    const passed = await Promise.all(Array.from({ length: 20 }, () => check(ada)))
    expect(passed.filter(({ success }) => success)).toHaveLength(5)
    await Promise.all(passed.map((each) => each.success && each.settle(() => false)))
    expect(await left()).toEqual(all(5))
  })

  test('a charge of one window is not given back to the next one', async () => {
    const { check, left, all } = setup('failures', 2)
    const slow = await check(ada)
    clock.advance(60_000)
    expect(await settled(check, true)).toBe(true)
    if (slow.success) await slow.settle(() => false)
    expect(await left()).toEqual(all(1))
  })

  test('whether it has failed may be known later', async () => {
    const { check, left, all } = setup('failures', 3)
    for (const failed of [true, false]) {
      const passed = await check(ada)
      if (passed.success) await passed.settle(async () => failed)
    }
    expect(await left()).toEqual(all(2))
  })

  test('whether it has failed is read as JavaScript reads it', async () => {
    const { check, left, all } = setup('failures', 3)
    for (const failed of ['no user', undefined]) {
      const passed = await check(ada)
      if (passed.success) await passed.settle(() => failed as unknown as boolean)
    }
    expect(await left()).toEqual(all(2))
  })

  test.each(['failures', 'successes'] as const)(
    'a request of unknown outcome stays charged, with %s only',
    async (count) => {
      const { check, left, all } = setup(count, 3)
      const fail = () => {
        throw new Error('unknown')
      }
      for (const hasFailed of [fail, async () => fail()]) {
        const passed = await check(ada)
        if (passed.success) expect(await passed.settle(hasFailed)).toBeUndefined()
      }
      expect(await left()).toEqual(all(1))
    },
  )

  test('the answer is data: it settles nothing, and can be cloned and logged', async () => {
    const { db } = database
    const limiter = Ratelimit.fixedWindow(2, '1h')
    const ratelimit = new Ratelimit({ db, limiter, prefix: 'data' })
    const limits = [ratelimit, limitOf(2)].slice(0, number === 'one limit' ? 1 : 2)
    const check = guard({ limits: limits.map((each) => ({ ratelimit: each, key })), count: 'failures' })
    const { answer } = await check({ user: `${number}'s key` })
    expect(structuredClone(answer)).toEqual(answer)
  })

  test('a request that is never settled stays charged', async () => {
    const { check, left, all } = setup('failures', 2)
    await check(ada)
    expect(await left()).toEqual(all(1))
  })
})

describe('resetOnSuccess', () => {
  const attempt = async (check: ReturnType<typeof guard>, failed: boolean, context: Context = ada) => {
    const decided = await check(context)
    if (decided.success) await decided.settle(() => failed)
    return decided.success
  }

  test('a success forgets the failures before it, in the limits that have it', async () => {
    const perAddress = limitOf(9)
    const limiter = lockout(3, '1m', { block: '1m', factor: 2 })
    const perAccount = new Ratelimit({ db: database.db, limiter, prefix: 'guard lockout', clock: clock.now })
    const limits = [
      { ratelimit: perAddress, key: () => '192.0.2.1' },
      { ratelimit: perAccount, key, resetOnSuccess: true },
    ]
    const check = guard({ limits, count: 'failures' })
    const used = async () => [
      (await perAddress.getRemaining('192.0.2.1')).used,
      (await perAccount.getRemaining('ada')).used,
    ]
    for (const [failed, left] of [
      [true, [1, 1]],
      [true, [2, 2]],
      [false, [2, 0]],
      [true, [3, 1]],
    ] as const) {
      expect(await attempt(check, failed)).toBe(true)
      expect(await used()).toEqual(left)
    }
    // The attempt that reaches the limit starts a block, and ends it if it succeeds.
    expect([await attempt(check, true), await attempt(check, false)]).toEqual([true, true])
    expect(await used()).toEqual([4, 0])
    for (const expected of [true, true, true, false]) expect(await attempt(check, true)).toBe(expected)
    expect(await attempt(check, false)).toBe(false)
  })

  test('is that of the plan of the request', async () => {
    const ratelimit = limitOf(1)
    const plan = calendarWindow(2, 'day')
    const check = guard({ ratelimit, key, limiter: () => plan, count: 'failures', resetOnSuccess: true })
    const answers = []
    for (const failed of [true, false, true, true, true]) answers.push(await attempt(check, failed))
    expect(answers).toEqual([true, true, true, true, false])
  })

  test('a reset that fails changes no response, and onError gets the error', async () => {
    const told: unknown[] = []
    const { db } = watch(database.db, (text) => {
      if (text.startsWith('delete')) throw Object.assign(new Error('away'), AWAY.UNREACHABLE)
    })
    const check = guard({
      ...{ ratelimit: limitOf(3, db), key, count: 'failures', resetOnSuccess: true },
      onError: (error) => {
        told.push((error as RatelimitError).code)
        return 'throw'
      },
    })
    expect([await attempt(check, true), await attempt(check, false)]).toEqual([true, true])
    expect(told).toEqual(['UNREACHABLE'])
  })

  test("needs count: 'failures'", () => {
    const refused = expect.objectContaining({
      code: 'INVALID_OPTION',
      message: expect.stringMatching('failures'),
    })
    const limit = { ratelimit: limitOf(1), key, resetOnSuccess: true }
    expect(() => guard(limit)).toThrow(refused)
    expect(() => guard({ limits: [limit], count: 'successes' })).toThrow(refused)
    // @ts-expect-error not a boolean
    expect(() => guard({ ...limit, count: 'failures', resetOnSuccess: 1 })).toThrow('resetOnSuccess')
  })
})

describe('thresholds if only some requests count', () => {
  const monthly = (db: Config['db'], options: Partial<Pick<Config, 'onError'>> = {}) =>
    new Quota({
      db,
      durable: false,
      limiter: calendarWindow(10, 'month'),
      prefix: `guard ${prefixes++}`,
      clock: clock.now,
      thresholds: [0.3, 0.5],
      cleanupProbability: 0,
      ...options,
    } as QuotaConfig)
  const failing = (limits: readonly Ratelimit[]) => {
    const check = guard({ limits: limits.map((ratelimit) => ({ ratelimit, key })), count: 'failures' })
    return async (...failures: boolean[]) => {
      const answers: unknown[] = []
      for (const failed of failures) {
        const passed = await check(ada)
        answers.push(passed.answer)
        if (passed.success) await passed.settle(() => failed)
      }
      return answers
    }
  }

  test.each([1, 2])('are not kept from direct calls in a calendar window, of %d limits', async (number) => {
    const ratelimit = monthly(database.db)
    const send = failing([ratelimit, limitOf(10)].slice(0, number))
    for (const answer of await send(true, false, true, true)) expect(answer).not.toHaveProperty('crossed')
    expect(await ratelimit.limit('ada')).toMatchObject({ remaining: 6 })
    expect(await ratelimit.limit('ada')).toMatchObject({ remaining: 5, crossed: [0.5] })
  })

  test('are not kept from direct calls if it is unknown whether the requests failed', async () => {
    const ratelimit = monthly(database.db)
    const check = guard({ limits: [{ ratelimit, key }], count: 'failures' })
    for (let i = 0; i < 4; i++) {
      const passed = await check(ada)
      if (passed.success) await passed.settle(() => Promise.reject(new Error('unknown')))
    }
    expect(await ratelimit.limit('ada')).toMatchObject({ remaining: 5, crossed: [0.5] })
  })

  test('cost such requests one more statement, and no others', async () => {
    const taken = async (ratelimit: (db: Config['db']) => Ratelimit, failed: boolean) => {
      const { db, statements } = watch(database.db)
      const send = failing([ratelimit(db)])
      await send(true)
      statements.length = 0
      await send(failed)
      return statements.length
    }
    const inWindow = (db: Config['db']) => limitOf(10, db)
    expect([await taken(monthly, true), await taken(monthly, false)]).toEqual([2, 2])
    expect([await taken(inWindow, true), await taken(inWindow, false)]).toEqual([1, 2])
  })

  test.each([1, 2])(
    'requests that passed in an outage are not charged afterwards, by %d limits',
    async (number) => {
      let isAway = true
      const { db } = watch(
        database.db,
        () => isAway && Promise.reject(Object.assign(new Error('away'), AWAY.UNREACHABLE)),
      )
      const limits = [monthly(db, { onError: 'allow' }), monthly(db, { onError: 'allow' })].slice(0, number)
      const check = guard({ limits: limits.map((ratelimit) => ({ ratelimit, key })), count: 'failures' })
      const passed = await check(ada)
      expect(passed).toMatchObject({ success: true, answer: { degraded: true } })
      isAway = false
      if (passed.success) await passed.settle(() => true)
      for (const each of limits) expect(await each.getRemaining('ada')).toMatchObject({ used: 0 })
    },
  )
})

describe('errors', () => {
  test('reach the framework by default', async () => {
    await expect(guard({ ratelimit: failing('UNREACHABLE'), key })(ada)).rejects.toBeInstanceOf(
      RatelimitError,
    )
  })

  test.each(['UNREACHABLE', 'MISSING_TABLE'] as const)(
    'onError decides, and gets the error: %s',
    async (code) => {
      const told: unknown[] = []
      const verdict = (answer: 'throw' | 'allow' | 'deny') =>
        guard({
          ratelimit: failing(code),
          key,
          onError: (error, { user }) => {
            told.push((error as RatelimitError).code, user)
            return answer
          },
        })(ada)
      await expect(verdict('throw')).rejects.toBeInstanceOf(RatelimitError)
      expect(await verdict('allow')).toMatchObject({ success: true, answer: undefined, headers: {} })
      expect(await verdict('deny')).toMatchObject({
        success: false,
        answer: { degraded: true },
        problem: { status: 503 },
        headers: { 'Retry-After': '1' },
      })
      expect(new Set(told)).toEqual(new Set([code, 'ada']))
    },
  )

  test.each([undefined, null, 'denied', 'Allow', true, {}])(
    'an unknown verdict of onError is an error: %j',
    async (verdict) => {
      const options = { ratelimit: failing('UNREACHABLE'), key, onError: () => verdict }
      const check = guard(options as unknown as GuardOptions<Context>)
      await expect(check(ada)).rejects.toMatchObject({ code: 'UNREACHABLE' })
    },
  )

  test('an error of another copy of the package reaches onError unless it is a mistake of the caller', async () => {
    const file = '../../../src/kernel/errors.ts'
    const copy: typeof import('../../../src/kernel/errors.ts') = await import(`${file}?copy`)
    expect(copy.RatelimitError).not.toBe(RatelimitError)
    const throwing = (code: 'INVALID_KEY' | 'UNREACHABLE') => {
      const limit = () => Promise.reject(new copy.RatelimitError(code, ''))
      const ratelimit = Object.assign(limitOf(1), { limit })
      return guard({ ratelimit, key, onError: () => 'allow' })(ada)
    }
    await expect(throwing('INVALID_KEY')).rejects.toMatchObject({ code: 'INVALID_KEY' })
    expect(await throwing('UNREACHABLE')).toMatchObject({ success: true })
  })

  test('onError may decide later', async () => {
    const later = (onError: () => Promise<'throw' | 'allow' | 'deny'>) =>
      guard({ ratelimit: failing('UNREACHABLE'), key, onError })(ada)
    await expect(later(async () => 'throw')).rejects.toMatchObject({ code: 'UNREACHABLE' })
    expect(await later(async () => 'deny')).toMatchObject({ success: false, problem: { status: 503 } })
    expect(await later(async () => 'allow')).toMatchObject({ success: true, answer: undefined })
    const own = new Error('503')
    await expect(later(() => Promise.reject(own))).rejects.toBe(own)
  })

  test('onError gets the error of a failed refund, and the charge stays', async () => {
    let isAway = false
    const { db } = watch(
      database.db,
      () => isAway && Promise.reject(Object.assign(new Error('away'), { code: '08006' })),
    )
    const ratelimit = limitOf(2, db)
    const told: unknown[] = []
    const onError = (error: unknown) => {
      told.push(error)
      return 'allow' as const
    }
    const passed = await guard({ ratelimit, key, count: 'failures', onError })(ada)
    const untold = await guard({ ratelimit, key, count: 'failures' })(ada)
    isAway = true
    if (passed.success) await passed.settle(() => false)
    if (untold.success) await untold.settle(() => false)
    expect(told).toEqual([expect.any(RatelimitError)])
    isAway = false
    expect(await ratelimit.getRemaining('ada')).toMatchObject({ remaining: 0 })
  })

  test('onError may throw for a check, and its throw after a failed refund is ignored', async () => {
    let isAway = false
    const { db } = watch(
      database.db,
      () => isAway && Promise.reject(Object.assign(new Error('away'), AWAY.UNREACHABLE)),
    )
    const own = new Error('503')
    const onError = () => {
      throw own
    }
    const check = guard({ ratelimit: limitOf(2, db), key, count: 'failures', onError })
    const passed = await check(ada)
    isAway = true
    if (!passed.success) throw new Error('denied')
    expect(await passed.settle(() => false)).toBeUndefined()
    await expect(check(ada)).rejects.toBe(own)
  })

  test("errors of the application's own functions reach the framework", async () => {
    const broken = new Error('broken')
    const options = { ratelimit: limitOf(1), key, onError: () => 'allow' as const }
    const fail = () => Promise.reject(broken)
    for (const wrong of [{ key: fail }, { rate: fail }, { limiter: fail }, { skip: fail }]) {
      await expect(guard({ ...options, ...wrong })(ada)).rejects.toBe(broken)
    }
  })

  test.each([
    { limits: [] },
    { ratelimit: undefined, key },
    { ratelimit: {}, key },
    { count: 'some' },
    { key: 'ada' },
    { headers: 'draft-7' },
    { headers: [] },
    { headers: ['draft-6', 'draft-8'] },
  ])('refuses %j', (wrong) => {
    const options = { ratelimit: limitOf(1), key, ...wrong } as unknown as GuardOptions<Context>
    expect(() => guard(options)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
  })

  test.each([
    { rate: 'two' },
    { rate: -1 },
    { rate: Number.NaN },
    { rate: Number.POSITIVE_INFINITY },
    { rate: 0.5 },
    { rate: { '/': -1 } },
    { rate: { '/': Number.NaN } },
    { rate: { '/': 1, 'POST /': '2' } },
    { rate: { '/': 0.5 } },
    { rate: { '/': 0.5 }, limiter: Ratelimit.slidingWindow(1, '1m') },
  ])('refuses %o before any request', (wrong) => {
    const options = { ratelimit: limitOf(1), key, ...wrong } as unknown as GuardOptions<Context>
    expect(() => guard(options)).toThrow(expect.objectContaining({ code: 'INVALID_RATE' }))
  })

  test.each([['', '/'], ['GET  /'], ['GET / x'], ['/a b'], ['/A', '/a/'], ['HEAD /a'], ['head /a']])(
    'refuses a table of rates with the names %j %j',
    (...names) => {
      const rate = Object.fromEntries(names.filter((name) => name !== undefined).map((name) => [name, 1]))
      const options = { ratelimit: limitOf(1), key, rate }
      expect(() => guard(options)).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
    },
  )

  test('fractional rates are valid for limits that count them, and may be valid for limiters of each request', () => {
    const bucket = Ratelimit.tokenBucket(1, '1s', 10)
    const options = { ratelimit: limitOf(1), key, rate: { '/': 0.5 } }
    expect(() => guard({ ...options, limiter: bucket })).not.toThrow()
    expect(() => guard({ ...options, limiter: () => bucket })).not.toThrow()
  })

  test.each(['k'.repeat(2000), 'a\0b', '\ud800'])(
    'a key that no row can have is an error: %j',
    async (own) => {
      const options = { key: () => own, onError: () => 'allow' as const }
      const refused = { code: 'INVALID_KEY' }
      await expect(guard({ ...options, ratelimit: limitOf(1) })(ada)).rejects.toMatchObject(refused)
      const { db } = database
      const hashing = new Ratelimit({
        db,
        limiter: Ratelimit.fixedWindow(1, '1h'),
        prefix: 'hashing',
        hashKeys: true,
      })
      const hashed = guard({ ...options, ratelimit: hashing })(ada)
      if (own.length > 1000) expect(await hashed).toMatchObject({ success: true })
      else await expect(hashed).rejects.toMatchObject(refused)
    },
  )
})
