import { Agent, request } from 'node:http'
import { getRequestListener } from '@hono/node-server'
import express from 'express'
import { Hono } from 'hono'
import { afterAll, describe, expect, test } from 'vitest'
import { rateLimit as expressLimit } from '../../../src/http/express.ts'
import { rateLimit as honoLimit } from '../../../src/http/hono.ts'
import { Ratelimit } from '../../../src/index.ts'
import { newPrefix, serve } from '../../http/routes/serve.ts'
import { tell } from '../../support/happened.ts'
import { usePool } from './pool.ts'

// One client that spells the paths of a table of rates in every way it knows.

const opened = usePool()

const LIMIT = 1_000_000

const agent = new Agent({ keepAlive: true })
afterAll(() => agent.destroy())

/** What a request costs at least, by what answers it. */
const COSTS: Record<string, number> = { health: 0, reports: 10, others: 1 }

function limit() {
  const limiter = Ratelimit.fixedWindow(LIMIT, '1h')
  const ratelimit = new Ratelimit({ db: opened.db, limiter, prefix: newPrefix() })
  return { ratelimit, key: () => 'client', rate: { '/health': 0, '/reports': 10 } }
}

const handlers = Object.keys(COSTS)

const servers: Record<string, () => Promise<string>> = {
  Express: () => {
    const app = express()
    app.use(expressLimit(limit()))
    for (const name of handlers.slice(0, 2)) app.all(`/${name}`, (_req, res) => void res.send(name))
    app.use((_req, res) => void res.send('others'))
    return serve(app)
  },
  'Express with mounted routers': () => {
    const app = express()
    const limited = expressLimit(limit())
    for (const name of handlers.slice(0, 2)) {
      app.use(
        `/${name}`,
        express.Router().all('/', limited, (_req, res) => void res.send(name)),
      )
    }
    app.use(limited, (_req, res) => void res.send('others'))
    return serve(app)
  },
  'Express with strict routes': () => {
    const app = express().enable('strict routing').enable('case sensitive routing')
    app.use(expressLimit(limit()))
    for (const name of handlers.slice(0, 2)) app.all(`/${name}`, (_req, res) => void res.send(name))
    app.use((_req, res) => void res.send('others'))
    return serve(app)
  },
  Hono: () => {
    const app = new Hono()
    app.use(honoLimit(limit()))
    for (const name of handlers.slice(0, 2)) app.all(`/${name}`, (c) => c.text(name))
    app.all('*', (c) => c.text('others'))
    return serve(getRequestListener(app.fetch))
  },
  'Hono without strict paths': () => {
    const app = new Hono({ strict: false })
    app.use(honoLimit(limit()))
    for (const name of handlers.slice(0, 2)) app.all(`/${name}`, (c) => c.text(name))
    app.all('*', (c) => c.text('others'))
    return serve(getRequestListener(app.fetch))
  },
}

/** Ways to write a path so that some router takes it for another one, or for the same. */
function spellingsOf(path: string): string[] {
  const encoded = (character: string) => `%${character.charCodeAt(0).toString(16)}`
  const [first = '', rest] = [path[0], path.slice(1)]
  const names = [
    path,
    path.toUpperCase(),
    first.toUpperCase() + rest,
    encoded(first) + rest,
    encoded(first.toUpperCase()) + rest,
    encoded('%') + encoded(first).slice(1) + rest,
  ]
  const [starts, ends] = [
    ['/', '//', '/./', '/x/../', '/%2F'],
    ['', '/', '//', '/.', '%2F', '%00', ';x=1', '/?x', '.', '\\'],
  ]
  return [...new Set(names.flatMap((name) => starts.flatMap((a) => ends.map((b) => a + name + b))))]
}

function send(url: string, path: string): Promise<{ name: string; left: number | undefined }> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    const sent = request({ hostname, port, path, agent }, async (response) => {
      const body = (await response.setEncoding('utf8').toArray()).join('')
      const [, left] = /;r=(\d+)/.exec(String(response.headers['ratelimit'])) ?? []
      resolve({ name: body, left: left === undefined ? undefined : Number(left) })
    })
    sent.on('error', reject).end()
  })
}

describe.each(Object.entries(servers))('%s', (_server, start) => {
  test('no spelling of a path makes its request cheaper', async () => {
    const url = await start()
    let before = LIMIT
    const answered: Record<string, number> = {}
    const cheap: string[] = []
    for (const path of ['health', 'reports'].flatMap(spellingsOf)) {
      const { name, left = before } = await send(url, path)
      const cost = before - left
      before = left
      const least = COSTS[name]
      if (least === undefined) continue
      answered[name] = (answered[name] ?? 0) + 1
      if (cost < least) cheap.push(`${path} is ${name} for ${cost}`)
    }
    expect(cheap).toEqual([])
    for (const name of handlers) expect(answered[name]).toBeGreaterThan(0)
    for (const [name, times] of Object.entries(answered))
      tell('spellings of paths', `answered as ${name}`, times)
  })
})
