import { getRequestListener } from '@hono/node-server'
import { rateLimit as onExpress } from 'drizzle-ratelimit/express'
import { rateLimit as onHono } from 'drizzle-ratelimit/hono'
import { limitedRoute, rateLimit as onNext } from 'drizzle-ratelimit/next'
import express from 'express'
import { Hono } from 'hono'
import { cors } from 'hono/cors'
import { NextRequest } from 'next/server.js'
import { describe, expect, test } from 'vitest'
import type { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { perHour, serve } from './serve.ts'

// A browser asks by a preflight before a request to another origin. A limiter in front of the CORS middleware
// must not answer it with 429: the response would lack the headers of CORS.

const database = useDatabase()

/** Sends a request, and gives its status. */
type Send = (init: RequestInit) => Promise<number>
type Skip = { readonly skip?: () => boolean }

const key = () => 'all'

const ADAPTERS: Readonly<Record<string, (ratelimit: Ratelimit, options: Skip) => Promise<Send>>> = {
  Express: async (ratelimit, options) => {
    const app = express()
    app.use(onExpress({ ratelimit, key, ...options }), (_req, res) => void res.sendStatus(204))
    const url = await serve(app)
    return async (init) => (await fetch(url, init)).status
  },
  Hono: async (ratelimit, options) => {
    const app = new Hono()
    app.use(onHono({ ratelimit, key, ...options }))
    app.use(cors())
    app.all('/', (c) => c.body(null, 204))
    const url = await serve(getRequestListener(app.fetch))
    return async (init) => (await fetch(url, init)).status
  },
  'a proxy of Next': async (ratelimit, options) => {
    const proxy = onNext({ ratelimit, key, ...options })
    return async (init) => ((await proxy(requestOf(init))).status === 429 ? 429 : 204)
  },
  'a route of Next': async (ratelimit, options) => {
    const route = limitedRoute({ ratelimit, key, ...options }, () => new Response(null, { status: 204 }))
    return async (init) => (await route(requestOf(init), {})).status
  },
}

function requestOf({ method = 'GET', headers = {} }: RequestInit): NextRequest {
  return new NextRequest('http://localhost/', { method, headers })
}

// fetch may not send some of these headers in a browser. Here it may.
const PREFLIGHT = {
  method: 'OPTIONS',
  headers: { origin: 'https://app.example', 'access-control-request-method': 'POST' },
}

describe.each(Object.entries(ADAPTERS))('%s', (_name, adapter) => {
  test('preflights pass and are not counted; other requests are', async () => {
    const ratelimit = perHour(database.db, 1)
    const send = await adapter(ratelimit, {})
    expect([await send(PREFLIGHT), await send({}), await send(PREFLIGHT)]).toEqual([204, 204, 204])
    expect(await send({})).toBe(429)
    expect(await send({ headers: PREFLIGHT.headers })).toBe(429)
    expect(await send({ method: 'OPTIONS' })).toBe(429)
    expect(await send({ method: 'OPTIONS', headers: { origin: 'https://app.example' } })).toBe(429)
    expect(await ratelimit.getRemaining('all')).toMatchObject({ used: 1 })
  })

  test('a skip of the application decides about preflights too', async () => {
    const send = await adapter(perHour(database.db, 1), { skip: () => false })
    expect([await send(PREFLIGHT), await send(PREFLIGHT)]).toEqual([204, 429])
  })
})

test('behind the CORS middleware of Hono a denial has its headers', async () => {
  const app = new Hono()
  app.use(cors({ origin: '*', exposeHeaders: ['RateLimit', 'RateLimit-Policy'] }))
  app.use(onHono({ ratelimit: perHour(database.db, 0), key }))
  app.get('/', (c) => c.text('hello'))
  const { status, headers } = await fetch(await serve(getRequestListener(app.fetch)))
  expect([status, headers.get('access-control-allow-origin')]).toEqual([429, '*'])
  expect(headers.get('access-control-expose-headers')).toBe('RateLimit,RateLimit-Policy')
  expect(headers.get('ratelimit')).toMatch(';r=0')
})
