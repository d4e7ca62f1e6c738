import { rateLimit } from 'drizzle-ratelimit/next'
import { NextRequest } from 'next/server.js'
import { expect, test } from 'vitest'
import { useDatabase } from '../support/databases.ts'
import { perHour } from './serve.ts'

// What needs no server of Next. test/packed/next.test.ts has the rest.

const database = useDatabase()

const nextConfig = { basePath: '/shop', i18n: { locales: ['en', 'fr'], defaultLocale: 'en' } }

test.each([
  ['/reports', 10],
  ['/fr/reports', 10],
  ['/FR/reports', 10],
  ['/shop/fr/reports', 10],
  ['/shop/fr/REPORTS/', 10],
  ['/_next/data/build/fr/reports.json', 10],
  ['/fr/health', 0],
  ['/fr/HEALTH', 1],
  ['/de/reports', 1],
])(
  'Next routes %s without the locale and the base path, and so does a table of rates: it costs %d',
  async (path, cost) => {
    const ratelimit = perHour(database.db, 100)
    const rate = { '/reports': 10, '/health': 0 }
    const proxy = rateLimit({ ratelimit, key: () => 'all', rate })
    expect((await proxy(new NextRequest(`http://localhost${path}`, { nextConfig }))).status).toBe(200)
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: cost })
  },
)
