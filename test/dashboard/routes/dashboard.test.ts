import { getRequestListener } from '@hono/node-server'
import { countDenials } from 'drizzle-ratelimit/denials'
import { blocks, lockout } from 'drizzle-ratelimit/lockout'
import express from 'express'
import { Hono } from 'hono'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type DashboardOptions, dashboard } from '../../../src/dashboard/index.ts'
import { type Database, Ratelimit } from '../../../src/index.ts'
import { serve } from '../../http/routes/serve.ts'
import { TestClock } from '../../support/clock.ts'
import { creditsOn } from '../../support/credits.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
afterEach(() => void vi.useRealTimers())

const secret = 'sixteen or longer'
const five = Ratelimit.fixedWindow(5, '1h')
const URL_OF = 'https://admin.example/limits'
const ADA = { id: 'ada', allow: ['reset', 'grant', 'block'] } as const
let prefixes = 0

/** A limiter that counts denials, and waits until they are written. */
function limiterOf(options: object = {}, db: Database = database.db) {
  const handed: Promise<unknown>[] = []
  const prefix = `page ${prefixes++}`
  const ratelimit = new Ratelimit({
    ...{ db, limiter: five, prefix, use: [countDenials({ every: 1 })], cleanupProbability: 0 },
    ...{ waitUntil: (work: Promise<unknown>) => void handed.push(work) },
    ...options,
  })
  const written = async () => {
    for (const each of handed) await each
  }
  return { ratelimit, written, prefix }
}

/** A page, as a browser uses it: with the token of the last page that it has seen. */
function browse(
  limiters: DashboardOptions['limiters'],
  authorize: DashboardOptions['authorize'] = () => ADA,
) {
  const handler = dashboard({ limiters, authorize, secret })
  let token = ''
  const ask = async (search: string, init?: RequestInit) => {
    const response = await handler(new Request(URL_OF + search, init))
    const text = await response.text()
    token = /name="token" value="([^"]+)"/.exec(text)?.[1] ?? token
    return { response, status: response.status, text }
  }
  const post = (search: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
    ask(search, { method: 'POST', body: new URLSearchParams({ token, ...fields }), headers })
  return { get: (search = '') => ask(search), ask, post, tokenOf: () => token }
}

describe('the page', () => {
  test('lists the limits and the denials of each hour', async () => {
    const clock = new TestClock()
    const { ratelimit, written } = limiterOf({ clock: clock.now })
    for (let i = 0; i < 9; i++) await ratelimit.limit('user:1')
    await written()
    clock.advance(3_600_000)
    for (let i = 0; i < 3; i++) await ratelimit.limit('user:2', { rate: 6 })
    await written()
    const { text } = await browse({
      api: ratelimit,
      other: limiterOf({ use: undefined }).ratelimit,
    }).get()
    expect(text).toContain('<a href="?limit=api">api</a>')
    expect(text).toContain('7 denials in the last 24 hours')
    expect(text).toContain('<title>10:00: 4</title>')
    expect(text).toContain('<title>11:00: 3</title>')
    expect(text.match(/<rect/g)).toHaveLength(24)
    expect(text).toContain('Denials are not counted')
  })

  test('lists the keys of a limit that use most and are denied most', async () => {
    const { ratelimit, written } = limiterOf()
    for (let i = 0; i < 7; i++) await ratelimit.limit('user:1')
    await ratelimit.limit('user:2')
    await written()
    const { text } = await browse({ api: ratelimit }).get('?limit=api')
    const cells = text.replaceAll(/<meter[^>]*><\/meter>|\n/g, '').replaceAll(/<button[^>]*>|<\/button>/g, '')
    expect(cells).toContain('<td>user:1</td><td></td><td>5</td><td>0</td><td>5</td><td>60 min</td>')
    expect(cells).toContain('<td>user:2</td><td></td><td>1</td><td>4</td><td>5</td><td>60 min</td>')
    expect(cells).toContain('<td>user:1</td><td>2</td>')
  })

  test('reads each key under its own plan', async () => {
    const { ratelimit } = limiterOf()
    const paid = Ratelimit.fixedWindow(500, '1h')
    await ratelimit.limit('paid:1', { rate: 100, limiter: paid })
    const { get, post } = browse({ api: { ratelimit, limiterOf: () => paid } })
    expect((await get('?limit=api')).text).toContain('<td>400</td>')
    expect((await post('?limit=api', { key: 'paid:1' })).text).toContain('<td>400</td>')
  })

  test('finds a key, also one that has used nothing', async () => {
    const { ratelimit } = limiterOf()
    await ratelimit.limit('user:1', { rate: 2 })
    const { get, post } = browse({ api: ratelimit })
    await get('?limit=api')
    const { text } = await post('?limit=api', { key: 'user:1' })
    expect(text).toContain('<code id="key">user:1</code>')
    expect(text).toContain('<td>2</td>')
    expect((await post('?limit=api', { key: 'new' })).text).toContain('<td>5</td>')
    expect(await post('?limit=api', { key: '' })).toMatchObject({ status: 400 })
  })

  test('names a key with line breaks as it is, although browsers change line breaks in forms', async () => {
    const { ratelimit } = limiterOf()
    const key = 'first\nsecond\rthird\r\n 100 %'
    await ratelimit.limit(key, { rate: 2 })
    const { get, post } = browse({ api: ratelimit })
    const { text } = await get('?limit=api')
    const stored = /name="stored" value="([^"]*)"/.exec(text)?.[1] ?? ''
    expect((await post('?limit=api', { stored })).text).toContain(`name="stored" value="${stored}"`)
    const sent = stored.replaceAll(/\r\n|\n|\r/g, '\r\n')
    expect(await post('?limit=api', { stored: sent, do: 'reset' })).toMatchObject({ status: 303 })
    expect(await ratelimit.getRemaining(key)).toMatchObject({ remaining: 5 })
    expect(await post('?limit=api', { stored: '%', do: 'reset' })).toMatchObject({ status: 400 })
  })

  test('answers a HEAD without a body, and says nothing about a change that it does not know', async () => {
    const { get, ask } = browse({ api: limiterOf().ratelimit })
    const { response, text } = await ask('?limit=api', { method: 'HEAD' })
    expect([response.status, text]).toEqual([200, ''])
    expect(response.headers.get('cache-control')).toBe('no-store')
    expect((await get('?limit=api&done=constructor')).text).not.toContain('role="status"')
  })

  test('resets a key, once', async () => {
    const { ratelimit } = limiterOf()
    await ratelimit.limit('user:1', { rate: 2 })
    const { get, post } = browse({ api: ratelimit })
    await get('?limit=api')
    const { response } = await post('?limit=api', { stored: 'user:1', do: 'reset' })
    expect(response.status).toBe(303)
    expect(response.headers.get('location')).toBe('?limit=api&done=reset')
    expect(await ratelimit.getRemaining('user:1')).toMatchObject({ remaining: 5 })
    expect((await get('?limit=api&done=reset')).text).toContain('The key has its whole limit again.')
  })

  test('grants credits, and resets none', async () => {
    const { credits: ratelimit } = creditsOn(database)
    const { get, post } = browse({ credits: ratelimit })
    await get('?limit=credits')
    expect(await post('?limit=credits', { stored: 'org:1', do: 'grant', amount: '250' })).toMatchObject({
      status: 303,
    })
    expect(await ratelimit.getRemaining('org:1')).toMatchObject({ remaining: 250 })
    for (const amount of ['', '0', '-5', '1.5', 'all'])
      expect(await post('?limit=credits', { stored: 'org:1', do: 'grant', amount })).toMatchObject({
        status: 400,
      })
    expect(await post('?limit=credits', { stored: 'org:1', do: 'reset' })).toMatchObject({ status: 400 })
    const { text } = await post('?limit=credits', { stored: 'org:1' })
    expect(text).toContain('value="grant"')
    expect(text).not.toContain('value="reset"')
    expect(await ratelimit.getRemaining('org:1')).toMatchObject({ remaining: 250 })
  })
})

test('blocks a key of a lockout, and unblocks it', async () => {
  const limiter = lockout(5, '15m', { block: '1m' })
  const { ratelimit } = limiterOf({ limiter })
  const { get, post } = browse({ logins: ratelimit })
  await get('?limit=logins')
  expect((await post('?limit=logins', { stored: 'ada' })).text).not.toContain('value="reset"')
  expect(await post('?limit=logins', { stored: 'ada', do: 'block', duration: '2h' })).toMatchObject({
    status: 303,
  })
  const { retryAfter } = await ratelimit.limit('ada')
  expect(retryAfter).toBeGreaterThan(7_100_000)
  for (const { text } of [await post('?limit=logins', { stored: 'ada' }), await get('?limit=logins')]) {
    expect(text).toContain('<td>2 h</td>')
    expect(text).toMatch(/Blocked for 2 h, until 20\d\d-/)
    expect(text).not.toContain('9,007,199')
  }
  for (const duration of ['', 'long', '2 days', '-1h', '2000d'])
    expect(await post('?limit=logins', { stored: 'ada', do: 'block', duration })).toMatchObject({
      status: 400,
    })
  expect(await post('?limit=logins', { stored: 'ada', do: 'unblock' })).toMatchObject({ status: 303 })
  expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
})

test('blocks a key of another limit that has blocks, and keeps its count', async () => {
  const { ratelimit } = limiterOf({ use: [blocks()] })
  await ratelimit.limit('ada', { rate: 2 })
  const { get, post } = browse({ api: ratelimit })
  await get('?limit=api')
  const { text } = await post('?limit=api', { stored: 'ada' })
  for (const each of ['reset', 'block', 'unblock']) expect(text).toContain(`value="${each}"`)
  await post('?limit=api', { stored: 'ada', do: 'block', duration: '2h' })
  expect(await ratelimit.limit('ada')).toMatchObject({ success: false })
  const pages = async () => [await post('?limit=api', { stored: 'ada' }), await get('?limit=api')]
  for (const { text } of await pages()) expect(text).toMatch(/Blocked for 2 h, until 20\d\d-/)
  expect((await pages())[0]?.text).toContain('<td>2 h</td>')
  await post('?limit=api', { stored: 'ada', do: 'unblock' })
  for (const { text } of await pages()) expect(text).not.toContain('Blocked for')
  expect(await ratelimit.limit('ada')).toMatchObject({ success: true, remaining: 2 })
})

test('no key of another limit can be blocked', async () => {
  const { get, post } = browse({ api: limiterOf().ratelimit })
  await get('?limit=api')
  expect((await post('?limit=api', { stored: 'a' })).text).not.toContain('value="block"')
  expect(await post('?limit=api', { stored: 'a', do: 'block', duration: '1h' })).toMatchObject({
    status: 400,
  })
  expect(await post('?limit=api', { stored: 'a', do: 'unblock' })).toMatchObject({ status: 400 })
})

describe('who may use it', () => {
  test.each<[string, DashboardOptions['authorize']]>([
    ['nothing', () => undefined],
    ['false', () => false],
    ['a promise of null', async () => null],
  ])('authorize returns %s: 403, and no query runs', async (_, authorize) => {
    const { db, statements } = watch(database.db)
    const limit = limiterOf({}, db).ratelimit
    const { get, post } = browse({ api: limit }, authorize)
    expect(await get('?limit=api')).toMatchObject({ status: 403 })
    expect(await post('?limit=api', { key: 'a' })).toMatchObject({ status: 403 })
    expect(statements).toEqual([])
  })

  test('a response of authorize is the answer', async () => {
    const { response } = await browse({ api: limiterOf().ratelimit }, () =>
      Response.redirect('https://admin.example/login'),
    ).get()
    expect(response.headers.get('location')).toBe('https://admin.example/login')
  })

  test('a viewer without `allow` sees no button and changes nothing', async () => {
    const { ratelimit: limit } = limiterOf()
    await limit.limit('a')
    const { get, post } = browse({ api: limit }, () => ({ id: 'eve' }))
    await get('?limit=api')
    expect((await post('?limit=api', { stored: 'a' })).text).not.toContain('value="reset"')
    for (const write of ['reset', 'grant', 'block', 'unblock', 'other', 'toString'])
      expect(await post('?limit=api', { stored: 'a', do: write, amount: '1' })).toMatchObject({ status: 403 })
    expect(await limit.getRemaining('a')).toMatchObject({ remaining: 4 })
  })

  test('the constructor refuses to start without authorize, a secret, or limiters', () => {
    const { ratelimit } = limiterOf()
    const all = { limiters: { api: ratelimit }, authorize: () => ADA, secret }
    for (const wrong of [
      { authorize: undefined },
      { secret: undefined },
      { secret: 'short' },
      { limiters: {} },
      { limiters: { api: {} } },
      { limiters: { api: { ratelimit, limiterOf: 5 } } },
      { limiters: { api: { ratelimit, limiterOf: () => five, top: 1 } } },
      { limiters: undefined },
      { other: 1 },
    ]) {
      const make = () => dashboard({ ...all, ...wrong } as unknown as DashboardOptions)
      expect(make).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
    }
  })
})

describe('forms', () => {
  async function used() {
    const { ratelimit } = limiterOf()
    await ratelimit.limit('a')
    const page = browse({ api: ratelimit })
    await page.get('?limit=api')
    return { ...page, ratelimit }
  }
  const RESET = { stored: 'a', do: 'reset' }

  test.each<[string, Record<string, string>, Record<string, string>]>([
    ['no token', { token: '' }, {}],
    ['another token', { token: `${Date.now() + 1e6}.AAAA` }, {}],
    ['no base64', { token: `${Date.now() + 1e6}.=A=` }, {}],
    ['another site', {}, { 'sec-fetch-site': 'cross-site' }],
    ['another subdomain', {}, { 'sec-fetch-site': 'same-site' }],
    ['another kind of body', {}, { 'content-type': 'text/plain' }],
    ['a huge body', { more: 'x'.repeat(70_000) }, {}],
  ])('with %s change nothing', async (_, fields, headers) => {
    const { post, ratelimit } = await used()
    expect(await post('?limit=api', { ...RESET, ...fields }, headers)).toMatchObject({ status: 403 })
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
    expect(await post('?limit=api', RESET)).toMatchObject({ status: 303 })
  })

  test('of another viewer change nothing', async () => {
    const { tokenOf, ratelimit } = await used()
    const { post } = browse({ api: ratelimit }, () => ({ ...ADA, id: 'eve' }))
    expect(await post('?limit=api', { ...RESET, token: tokenOf() })).toMatchObject({ status: 403 })
  })

  test('of another secret, or with a later end, change nothing', async () => {
    const { post, tokenOf } = await used()
    const [until = '', signature = ''] = tokenOf().split('.')
    expect(await post('?limit=api', { ...RESET, token: `${Number(until) + 1}.${signature}` })).toMatchObject({
      status: 403,
    })
  })

  test('change nothing after half a day', async () => {
    const { post } = await used()
    vi.useFakeTimers({ toFake: ['Date'] })
    vi.setSystemTime(Date.now() + 12 * 3_600_000 + 1)
    expect(await post('?limit=api', RESET)).toMatchObject({ status: 403 })
  })

  test('are the only way to change something, and no other method works', async () => {
    const { ask, get, ratelimit } = await used()
    expect(await get('?limit=api&stored=a&do=reset')).toMatchObject({ status: 200 })
    expect(await ask('?limit=api', { method: 'DELETE' })).toMatchObject({ status: 405 })
    expect(await ask('?limit=other')).toMatchObject({ status: 404 })
    expect(await ask('?limit=__proto__')).toMatchObject({ status: 404 })
    expect(await ask('', { method: 'POST' })).toMatchObject({ status: 404 })
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
  })
})

describe('mounted', () => {
  const handlerOf = () =>
    dashboard({ limiters: { api: limiterOf().ratelimit }, authorize: () => ADA, secret })

  /** Finds a key by the page at that address, as a browser would. */
  async function found(url: string): Promise<string> {
    const list = await (await fetch(`${url}?limit=api`)).text()
    const token = /name="token" value="([^"]+)"/.exec(list)?.[1] ?? ''
    const body = new URLSearchParams({ token, key: 'a key' })
    return (await fetch(`${url}?limit=api`, { method: 'POST', body })).text()
  }

  test('in Hono', async () => {
    const handler = handlerOf()
    const app = new Hono().all('/admin/limits', (context) => handler(context.req.raw))
    expect(await found(`${await serve(getRequestListener(app.fetch))}/admin/limits`)).toContain('a key')
  })

  test('in Express', async () => {
    const app = express().all('/admin/limits', getRequestListener(handlerOf()))
    expect(await found(`${await serve(app)}/admin/limits`)).toContain('a key')
  })
})

describe('what it shows', () => {
  test('every text is escaped', async () => {
    const evil = `<script>alert(1)</script>"'&`
    const { ratelimit, written } = limiterOf({ prefix: `<b>${prefixes++}` })
    for (let i = 0; i < 6; i++) await ratelimit.limit(evil)
    await written()
    const { get, post } = browse({ [evil]: ratelimit })
    const search = `?limit=${encodeURIComponent(evil)}`
    for (const { text } of [await get(), await get(search), await post(search, { key: evil })]) {
      expect(text).not.toContain('<script')
      expect(text).not.toContain('<b>')
      expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;')
    }
  })

  test('with hashKeys no page has a key, and no address ever has one', async () => {
    const { ratelimit } = limiterOf({ hashKeys: true })
    for (let i = 0; i < 6; i++) await ratelimit.limit('ada@example.com')
    const { get, post } = browse({ api: ratelimit })
    const list = await get('?limit=api')
    const hash = /name="stored" value="([0-9a-f]{64})"/.exec(list.text)?.[1] ?? ''
    const found = await post('?limit=api', { key: 'ada@example.com' })
    expect(found.text).toContain(`<code id="key">${hash}</code>`)
    for (const { text } of [list, found]) {
      expect(text).not.toContain('ada@example.com')
      for (const [, address = ''] of text.matchAll(/(?:href|action)="([^"]*)"/g)) {
        expect(['?', '?limit=api']).toContain(address)
      }
    }
    const reset = await post('?limit=api', { stored: hash, do: 'reset' })
    expect(reset.response.headers.get('location')).not.toContain(hash)
    expect(await ratelimit.getRemaining('ada@example.com')).toMatchObject({ remaining: 5 })
  })

  test('nothing may be loaded or framed, no script runs, and nothing is cached', async () => {
    const { response, text } = await browse({ api: limiterOf().ratelimit }).get('?limit=api')
    const headers = Object.fromEntries(response.headers)
    expect(headers).toMatchObject({
      'content-security-policy': expect.stringMatching(
        /^default-src 'none'; style-src 'sha256-[\w+/]{43}='; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$/,
      ),
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
    })
    expect(text).not.toMatch(/ style=| on\w+=|<script|javascript:/)
  })

  test('an outage is 503 without a key, and another error is thrown on', async () => {
    const broken = (error: Error) =>
      limiterOf(
        {},
        watch(database.db, () => {
          throw error
        }).db,
      ).ratelimit
    const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
    const { get } = browse({ api: broken(away) })
    const { status, text } = await get('?limit=api')
    expect(status).toBe(503)
    expect(text).toContain('UNREACHABLE')
    const failing = browse({ api: limiterOf().ratelimit }, () => {
      throw new Error('no session')
    })
    await expect(failing.get()).rejects.toThrow('no session')
  })
})
