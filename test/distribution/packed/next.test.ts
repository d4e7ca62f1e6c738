import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { statusesOf } from '../../http/routes/serve.ts'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { startNext } from './start-next.ts'

// The application in test/distribution/packed/next, built and started by Next with the packed package.

let database: TestDatabase
let url: string
let printed: readonly string[]

beforeAll(async () => {
  database = await emptyDatabase()
  const { storageSql, tableSql } = await import('../../../src/index.ts')
  await database.script([...tableSql(), ...storageSql()].join(';'))
  ;({ url, printed } = await startNext('next', { DATABASE_URL: database.url }))
})

afterAll(() => database?.close())

let keys = 0
/** A key that no other test has. */
const newKey = () => `key ${keys++}`

function request(path: string, key: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${url}${path}`, { ...init, headers: { 'x-api-key': key } })
}

/** How much of the key's limit is used. */
async function used(prefix: string, key: string): Promise<number> {
  const query = 'select count from rate_limit_ephemeral where prefix = $1 and key = $2'
  const [row] = await database.rows(query, [prefix, key])
  return Number(row?.['count'] ?? 0)
}

describe.each([
  { prefix: 'limited', by: 'limitedRoute' },
  { prefix: 'behind', by: 'rateLimit in proxy.ts' },
])('$by', ({ prefix }) => {
  const path = `/api/${prefix}`

  test('a request that passes has the headers', async () => {
    const response = await request(path, newKey())
    expect(response.status).toBe(200)
    expect(response.headers.get('ratelimit-policy')).toBe(`"${prefix}";q=7;w=3600`)
    expect(response.headers.get('ratelimit')).toMatch(new RegExp(`^"${prefix}";r=6;t=3[56]\\d\\d$`))
  })

  test('thirty requests at once stay within the limit, and a denial is a problem document', async () => {
    const key = newKey()
    expect(await statusesOf(30, () => request(path, key))).toEqual({ 200: 7, 429: 23 })
    expect(await used(prefix, key)).toBe(7)
    const denied = await request(path, key)
    expect(denied.headers.get('content-type')).toBe('application/problem+json')
    expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(3500)
    expect(await denied.json()).toMatchObject({ status: 429, limit: 7, 'violated-policies': [prefix] })
  })
})

test("the headers are those of the route's own limit, unless the proxy denies", async () => {
  const key = newKey()
  for (const left of [1, 0]) {
    const response = await request('/api/own', key)
    expect(response.headers.get('ratelimit-policy')).toBe('"own";q=2;w=3600')
    expect(response.headers.get('ratelimit')).toMatch(`"own";r=${left};`)
  }
  const byRoute = await request('/api/own', key)
  expect([byRoute.status, byRoute.headers.get('ratelimit')]).toEqual([
    429,
    expect.stringMatching('"own";r=0;'),
  ])
  expect(await statusesOf(5, () => request('/api/own', key))).toEqual({ 429: 5 })
  const byProxy = await request('/api/own', key)
  expect([byProxy.status, byProxy.headers.get('ratelimit')]).toEqual([
    429,
    expect.stringMatching('"behind";r=0;'),
  ])
  expect([await used('own', key), await used('behind', key)]).toEqual([2, 7])
})

test('a proxy lets requests through to the route that they ask for', async () => {
  expect(await (await request('/api/behind', newKey())).json()).toEqual({ reached: true })
})

test('a route handler has the answer in rateLimit', async () => {
  const answer = await (await request('/api/limited', newKey())).json()
  expect(answer).toMatchObject({ success: true, limit: 7, remaining: 6, results: [{ remaining: 6 }] })
})

test('only failures count: statuses of 400 and above, and errors that a handler throws', async () => {
  const key = newKey()
  const post = async (body: string) => (await request('/api/failing', key, { method: 'POST', body })).status
  for (const status of [200, 204, 302, 200]) expect(await post(String(status))).toBe(status)
  expect(await used('failing', key)).toBe(0)
  expect([await post('404'), await post('throw')]).toEqual([404, 500])
  expect(await used('failing', key)).toBe(2)
  expect(await post('200')).toBe(429)
})

test('onError decides, and the handler has its params', async () => {
  const key = newKey()
  const allowed = await request('/api/away/allow', key)
  expect(await allowed.json()).toEqual({ verdict: 'allow', isLimited: false })
  const denied = await request('/api/away/deny', key)
  expect([denied.status, await denied.json()]).toMatchObject([503, { status: 503 }])
  expect((await request('/api/away/throw', key)).status).toBe(500)
  expect(printed.filter((line) => line === 'onError was told UNREACHABLE')).toHaveLength(3)
})

describe('limitedAction', () => {
  let ids: ReadonlyMap<string, string>
  beforeAll(async () => {
    const page = await (await fetch(url)).text()
    const forms = page.matchAll(/<form id="(\w+)".*?\$ACTION_ID_(\w+)/g)
    ids = new Map([...forms].map(([, name = '', id = '']) => [name, id]))
    expect([...ids.keys()]).toEqual(['subscribe', 'signIn', 'byHeader'])
  })

  /** Calls an action as Next's client does. */
  function call(name: string, args: readonly unknown[], key = ''): Promise<Response> {
    const headers = {
      'Next-Action': ids.get(name) ?? '',
      'Content-Type': 'text/plain;charset=UTF-8',
      Accept: 'text/x-component',
      'X-Api-Key': key,
    }
    return fetch(url, { method: 'POST', redirect: 'manual', headers, body: JSON.stringify(args) })
  }

  /** What the action returned: the first row that the others are named in. */
  async function returned(response: Promise<Response>): Promise<unknown> {
    const [, row = ''] = /^1:(.*)$/m.exec(await (await response).text()) ?? []
    return JSON.parse(row)
  }

  test("returns the action's result, and thirty calls at once stay within the limit", async () => {
    const mail = newKey()
    const results = await Promise.all(
      Array.from({ length: 30 }, () => returned(call('subscribe', [mail, 'weekly']))),
    )
    const passed = results.filter((result) => JSON.stringify(result) === `{"weekly":"${mail}"}`)
    expect(passed).toHaveLength(7)
    expect(await used('subscribe', mail)).toBe(7)
    expect(await returned(call('subscribe', [mail, 'weekly']))).toEqual({
      denied: 7,
      retryAfter: expect.any(Number),
    })
  })

  test('a redirect is no failure, and an error is one', async () => {
    const mail = newKey()
    for (const _ of 'ab') {
      const redirected = await call('signIn', [mail, 'right'])
      expect(redirected.headers.get('x-action-redirect')).toContain('/welcome')
    }
    expect(await used('sign-in', mail)).toBe(0)
    expect((await call('signIn', [mail, 'wrong'])).status).toBe(500)
    expect(await used('sign-in', mail)).toBe(1)
    expect(await returned(call('signIn', [mail, 'right']))).toMatchObject({ denied: 1 })
  })

  test('finds the headers of the request', async () => {
    const key = newKey()
    expect(await returned(call('byHeader', [], key))).toBe('done')
    expect(await returned(call('byHeader', [], key))).toMatchObject({ denied: 1 })
    expect(await returned(call('byHeader', [], newKey()))).toBe('done')
  })
})
