import { betterAuth } from 'better-auth'
import { toNodeHandler } from 'better-auth/node'
import { rateLimitStorage, type StoreConfig } from 'drizzle-ratelimit/better-auth'
import { expect, test } from 'vitest'
import type { RatelimitConfig } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { useWarnings } from '../../support/warnings.ts'
import { away, newPrefix, serve, statusesOf } from './serve.ts'

const database = useDatabase()
const warn = useWarnings()

async function signInOn(config: Partial<RatelimitConfig> = {}): Promise<(from: string) => Promise<Response>> {
  const auth = betterAuth({
    baseURL: 'http://localhost:3000',
    secret: 'a secret that is long enough for a test',
    emailAndPassword: { enabled: true },
    advanced: { ipAddress: { ipAddressHeaders: ['x-real-ip'] } },
    logger: { disabled: true },
    rateLimit: {
      enabled: true,
      customRules: { '/sign-in/email': { window: 600, max: 3 } },
      customStorage: rateLimitStorage({ db: database.db, prefix: newPrefix(), ...config } as StoreConfig),
    },
  })
  const url = await serve(toNodeHandler(auth))
  return (from) =>
    fetch(`${url}/api/auth/sign-in/email`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: 'http://localhost:3000', 'x-real-ip': from },
      body: JSON.stringify({ email: 'ada@example.com', password: 'wrong password' }),
    })
}

test('the rules of Better Auth are kept, and a denial says when to try again', async () => {
  const signIn = await signInOn()
  for (const status of [401, 401, 401, 429]) expect((await signIn('192.0.2.1')).status).toBe(status)
  const denied = await signIn('192.0.2.1')
  const seconds = Number(denied.headers.get('x-retry-after'))
  expect(seconds).toBeGreaterThan(500)
  expect(Number.isInteger(seconds)).toBe(true)
  expect((await signIn('192.0.2.2')).status).toBe(401)
})

test('a denial by a rule that allows nothing has a number of seconds to wait', async () => {
  const { consume } = rateLimitStorage({ db: database.db, prefix: newPrefix() })
  expect(await consume('192.0.2.1', { window: 10, max: 0 })).toEqual({ allowed: false, retryAfter: 10 })
})

test('twenty requests at once stay within the limit', async () => {
  const signIn = await signInOn()
  expect(await statusesOf(20, () => signIn('192.0.2.1'))).toEqual({ 401: 3, 429: 17 })
})

test.each([['x'.repeat(1500)], ['a\0b'], ['\ud800']])(
  'a key that cannot be stored has a limit of its own: %#',
  async (key) => {
    const { consume } = rateLimitStorage({ db: database.db, prefix: newPrefix() })
    const rule = { window: 600, max: 1 }
    expect(await consume(key, rule)).toEqual({ allowed: true, retryAfter: null })
    expect(await consume(`${key}2`, rule)).toEqual({ allowed: true, retryAfter: null })
    expect(await consume(key, rule)).toMatchObject({ allowed: false })
  },
)

test.each([
  ['allow', 401, 0],
  ['deny', 429, 0],
  ['throw', 429, 1],
] as const)('with the database away, onError %s means %d', async (onError, status, warnings) => {
  const prefix = newPrefix()
  const signIn = await signInOn({ db: away(database.db), onError, prefix })
  for (const _ of 'ab') expect((await signIn('192.0.2.1')).status).toBe(status)
  expect(warn).toHaveBeenCalledTimes(warnings)
  if (warnings > 0) {
    const said = `^drizzle-ratelimit STORE_FAILED: .*"${prefix}" had UNREACHABLE: .*docs/errors.md#store_failed.$`
    expect(warn).toHaveBeenCalledWith(expect.stringMatching(said))
  }
})
