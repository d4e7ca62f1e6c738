import { getRequestListener } from '@hono/node-server'
import express from 'express'
import { Hono } from 'hono'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type DashboardOptions, type DashboardViewer, dashboard } from '../../../src/dashboard/index.ts'
import type { Database } from '../../../src/index.ts'
import { serve } from '../../http/routes/serve.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { ADA, browse, five, limiterOf as limiterOn, newPrefix, rowsIn, secret } from './browse.ts'

const database = useDatabase()
afterEach(() => void vi.useRealTimers())

const limiterOf = (options: object = {}, db: Database = database.db) => limiterOn(db, options)

describe('who may use it', () => {
  test.each<[string, DashboardOptions['authorize']]>([
    ['nothing', () => undefined],
    ['false', () => false],
    ['a promise of null', async () => null],
  ])('authorize returns %s: 403, and no query runs', async (_, authorize) => {
    const { db, statements } = watch(database.db)
    const limit = limiterOf({}, db).ratelimit
    const { get, post } = browse({ api: limit }, { authorize })
    expect(await get('?limit=api')).toMatchObject({ status: 403 })
    expect(await post('?limit=api', { key: 'a' })).toMatchObject({ status: 403 })
    expect(statements).toEqual([])
  })

  test('a response of authorize is the answer', async () => {
    const { response } = await browse(
      { api: limiterOf().ratelimit },
      { authorize: () => Response.redirect('https://admin.example/login') },
    ).get()
    expect(response.headers.get('location')).toBe('https://admin.example/login')
  })

  test.each<[string, DashboardViewer]>([
    ['without `allow`', { id: 'eve' }],
    // Untyped code may give it.
    ['whose `allow` is null', { id: 'eve', allow: null as never }],
    ['who may do something else', { id: 'eve', allow: ['grant', 'block'] }],
  ])('a viewer %s sees no button and changes nothing', async (_, viewer) => {
    const { ratelimit: limit } = limiterOf()
    await limit.limit('a')
    const { open, post } = browse({ api: limit }, { authorize: () => viewer })
    const { text, id } = await open('api', 'a')
    expect(text).not.toContain('value="reset"')
    for (const write of ['reset', 'grant', 'block', 'unblock', 'settle', 'other', 'toString'])
      for (const sure of [{}, { sure: 'yes' }])
        expect(await post('?limit=api', { id, do: write, amount: '1', ...sure })).toMatchObject({
          status: 403,
        })
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
      { limiters: { '': ratelimit } },
      { limiters: { api: { ratelimit, limiterOf: 5 } } },
      { limiters: { api: { ratelimit, limiterOf: () => five, top: 1 } } },
      { limiters: undefined },
      { onAction: 'log' },
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
    const { id } = await page.open('api', 'a')
    return { ...page, ratelimit, id, reset: { id, do: 'reset', sure: 'yes' } }
  }

  test.each<[string, Record<string, string>, Record<string, string>]>([
    ['no token', { token: '' }, {}],
    ['another token', { token: `${Date.now() + 1e6}.AAAA` }, {}],
    ['no base64', { token: `${Date.now() + 1e6}.=A=` }, {}],
    ['another site', {}, { 'sec-fetch-site': 'cross-site' }],
    ['another subdomain', {}, { 'sec-fetch-site': 'same-site' }],
    ['another kind of body', {}, { 'content-type': 'text/plain' }],
    ['a huge body', { more: 'x'.repeat(70_000) }, {}],
  ])('with %s change nothing', async (_, fields, headers) => {
    const { post, ratelimit, reset } = await used()
    expect(await post('?limit=api', { ...reset, ...fields }, headers)).toMatchObject({ status: 403 })
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
    expect(await post('?limit=api', reset)).toMatchObject({ status: 303 })
  })

  test('of another viewer change nothing', async () => {
    const { tokenOf, ratelimit, reset } = await used()
    const { post } = browse({ api: ratelimit }, { authorize: () => ({ ...ADA, id: 'eve' }) })
    expect(await post('?limit=api', { ...reset, token: tokenOf() })).toMatchObject({ status: 403 })
  })

  test('of another secret, or with a later end, change nothing', async () => {
    const { post, tokenOf, ratelimit, reset } = await used()
    const other = dashboard({ limiters: { api: ratelimit }, authorize: () => ADA, secret: `other ${secret}` })
    const page = await (await other(new Request('https://admin.example/limits'))).text()
    const [, foreign = 'no token'] = /name="token" value="([^"]+)"/.exec(page) ?? []
    expect(foreign).toMatch(/^[\w-]{40,}$/)
    const later = Buffer.from(tokenOf(), 'base64url')
    // The digest of a sealed text is before it. The time in it begins with a 1, which becomes a 9.
    const place = 16 + 'token '.length
    later.writeUInt8(later.readUInt8(place) ^ 8, place)
    for (const token of [foreign, later.toString('base64url')])
      expect(await post('?limit=api', { ...reset, token })).toMatchObject({ status: 403 })
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
  })

  test('change nothing with what a page has sealed for something else', async () => {
    const { get, post, ratelimit, id, reset } = await used()
    const own = `${Date.now() + 1e6} ${ADA.id}`
    // A search seals what anybody types.
    for (const typed of [own, ` ${own}`, `token ${own}`, 'key a']) {
      const { location } = await post('?limit=api', { key: typed, do: 'search' })
      const part = new URLSearchParams(location).get('part') ?? ''
      expect((await get(location)).text).toContain(typed)
      expect(await post('?limit=api', { ...reset, token: part })).toMatchObject({ status: 403 })
      expect(await post('?limit=api', { ...reset, id: part })).toMatchObject({ status: 400 })
      expect(await get(`?id=${part}`)).toMatchObject({ status: 404 })
      expect((await get(`?limit=api&id=${id}&said=${part}`)).text).not.toContain('role="status"')
    }
    expect((await get(`?limit=api&part=${id}`)).text).toContain('Nearest to the limit')
    expect(await ratelimit.getRemaining('a')).toMatchObject({ remaining: 4 })
  })

  test('change nothing after half a day', async () => {
    const { post, reset } = await used()
    vi.useFakeTimers({ toFake: ['Date'] })
    vi.setSystemTime(Date.now() + 12 * 3_600_000 + 1)
    expect(await post('?limit=api', reset)).toMatchObject({ status: 403 })
  })

  test('are the only way to change something, and no other method works', async () => {
    const { ask, get, ratelimit, id } = await used()
    expect(await get(`?limit=api&id=${id}&do=reset&sure=yes`)).toMatchObject({ status: 200 })
    expect(await ask('?limit=api', { method: 'DELETE' })).toMatchObject({ status: 405 })
    expect(await ask('?limit=other')).toMatchObject({ status: 404 })
    expect(await ask('?limit=__proto__')).toMatchObject({ status: 404 })
    expect(await ask('', { method: 'POST' })).toMatchObject({ status: 403 })
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
    const body = new URLSearchParams({ token, key: 'a key', do: 'open' })
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
    const { ratelimit, written } = limiterOf({ prefix: `<b>${newPrefix()}` })
    for (let i = 0; i < 6; i++) await ratelimit.limit(evil)
    await written()
    const { get, open, post, act } = browse({ [evil]: ratelimit })
    const name = encodeURIComponent(evil)
    const found = await open(name, evil)
    const { location } = await post(`?limit=${name}`, { key: evil, do: 'search' })
    const done = await act(name, evil, 'reset')
    const pages = [
      await get(),
      await get(`?limit=${name}`),
      await get(location),
      found,
      done,
      { text: done.question },
    ]
    for (const { text } of pages) {
      expect(text).not.toContain('<script')
      expect(text).not.toContain('<b>')
      expect(text).toContain('&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;')
    }
  })

  test('with hashKeys no page has a key, and no address ever has one', async () => {
    const { ratelimit } = limiterOf({ hashKeys: true })
    for (let i = 0; i < 6; i++) await ratelimit.limit('ada@example.com')
    const { get, open, post, act } = browse({ api: ratelimit })
    const list = await get('?limit=api')
    expect(list.text).toContain('which the page hashes')
    const [, address = '', hash = ''] = /<a class="key" href="([^"]*)">([0-9a-f]{64})</.exec(list.text) ?? []
    const found = await get(address.replaceAll('&amp;', '&'))
    expect(found.text).toContain(`The hash <code id="key">${hash}</code>`)
    const typed = await open('api', 'ada@example.com')
    const asked = await post('?limit=api', { id: typed.id, do: 'reset' })
    for (const { text } of [list, found]) expect(text).not.toContain('ada@example.com')
    for (const { text } of [list, found, typed, asked]) {
      for (const [, each = ''] of text.matchAll(/(?:href|action)="([^"]*)"/g)) {
        expect(each).not.toMatch(/ada|example\.com/)
        expect(each).not.toContain(hash)
      }
    }
    expect(decodeURIComponent((await act('api', 'ada@example.com', 'reset')).location)).not.toContain('ada@')
    expect(await ratelimit.getRemaining('ada@example.com')).toMatchObject({ remaining: 5 })
  })

  test('a hash says nothing about limits that store keys as they are', async () => {
    const [hashed, plain] = [limiterOf({ hashKeys: true }).ratelimit, limiterOf().ratelimit]
    await hashed.limit('ada')
    const { get, post } = browse({ hashed, plain })
    const [, id = ''] = /class="key" href="[^"]*id=([^"&]*)"/.exec((await get('?limit=hashed')).text) ?? []
    expect((await get(`?id=${id}`)).text).not.toContain('plain')
    expect(await post('?limit=plain', { id, do: 'reset' })).toMatchObject({ status: 400 })
    expect(await post('?limit=hashed', { id, do: 'reset', sure: 'yes' })).toMatchObject({ status: 303 })
    expect(await hashed.getRemaining('ada')).toMatchObject({ remaining: 5 })
  })

  test('a hash says nothing about limits that hash with another secret, and can be typed', async () => {
    const [one, same, other] = ['the first secret', 'the first secret', 'the other secret'].map(
      (hashKeys) => limiterOf({ hashKeys }).ratelimit,
    )
    const limiters = { one, same, other } as DashboardOptions['limiters']
    for (const each of [one, same, other]) await each?.limit('ada')
    const { get, post } = browse(limiters)
    const list = (await get('?limit=one')).text
    const hash = />([0-9a-f]{64})</.exec(list)?.[1] ?? ''
    const { location } = await post('?limit=one', { key: hash, do: 'search' })
    const { text } = await get(location)
    expect(text).toContain(`The hash <code id="key">${hash}</code>`)
    expect(rowsIn(text).map((row) => row.slice(0, 2))).toEqual([
      ['one 5 in 1 h', '20 % 1'],
      ['same 5 in 1 h', '20 % 1'],
    ])
    expect(text).not.toContain('>other<')
    const id = new URLSearchParams(location).get('id') ?? ''
    expect(await post('?limit=other', { id, do: 'reset' })).toMatchObject({ status: 400 })
    expect(await post('?limit=same', { id, do: 'reset' })).toMatchObject({ status: 200 })
  })

  test('a limit of any name has a page with a way back', async () => {
    const { get } = browse({ Limits: limiterOf().ratelimit })
    expect((await get('?limit=Limits')).text).toContain('<a href="?">All limits</a>')
    expect((await get()).text).not.toContain('All limits')
  })

  test('what Postgres has no text for is no key, and no outage', async () => {
    const { get, post } = browse({ api: limiterOf().ratelimit })
    await get('?limit=api')
    for (const what of ['search', 'open'])
      expect(await post('?limit=api', { key: 'a\0b', do: what })).toMatchObject({ status: 400 })
    expect(await get('?key=%00')).toMatchObject({ status: 400 })
  })

  test('a HEAD has no body, and what no page has sealed is not shown as a change', async () => {
    const { get, ask, open } = browse({ api: limiterOf().ratelimit })
    const { response, text } = await ask('?limit=api', { method: 'HEAD' })
    expect([response.status, text]).toEqual([200, ''])
    expect((await get(`?id=${(await open('api', 'a')).id}&said=AAAA`)).text).not.toContain('role="status"')
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
    const failing = browse(
      { api: limiterOf().ratelimit },
      {
        authorize: () => {
          throw new Error('no session')
        },
      },
    )
    await expect(failing.get()).rejects.toThrow('no session')
  })
})
