import { rateLimit } from 'drizzle-ratelimit/next'
import { NextRequest } from 'next/server.js'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { perHour } from './serve.ts'

const database = useDatabase()

test('a proxy sends the headers of its limit unless the route has its own, and those of each denial', async () => {
  const ratelimit = perHour(database.db, 2)
  const hasOwnLimit = ({ nextUrl }: NextRequest) => Promise.resolve(nextUrl.pathname === '/own')
  const proxy = rateLimit({ ratelimit, key: () => 'ada', hasOwnLimit })
  const told: unknown[] = []
  for (const path of ['other', 'own', 'own']) {
    const { status, headers } = await proxy(new NextRequest(`http://localhost/${path}`))
    told.push([status, headers.get('x-middleware-next'), headers.get('ratelimit-policy')])
  }
  const policy = `"${ratelimit.prefix}";q=2;w=3600`
  expect(told).toEqual([
    [200, '1', policy],
    [200, '1', null],
    [429, null, policy],
  ])
})
