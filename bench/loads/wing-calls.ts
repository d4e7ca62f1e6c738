import { randomUUID } from 'node:crypto'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import fastify, { type FastifyRequest } from 'fastify'
import { Hono } from 'hono'
import { rateLimit as fastifyHook } from '../../src/http/fastify.ts'
import { rateLimit as honoMiddleware } from '../../src/http/hono.ts'
import { limitAll } from '../../src/index.ts'
import { Members } from '../../src/members/index.ts'
import { schedule } from '../../src/schedule/index.ts'
import { makeKeys } from '../contenders/contender.ts'
import { defaultLimiter } from '../contenders/this-package.ts'
import { keyNumbers } from '../measure.ts'
import { type Call, requestsOf } from './calls.ts'
import { KEYS, withRows } from './known-rows.ts'

const newId = () => ({ id: randomUUID(), for: '1h' }) as const

/** Calls that may wait, on limits that are free, and start times that are given once. */
export async function waitsOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const first = await withRows(defaultLimiter(db, 'waiting'))
  const second = await withRows(defaultLimiter(db, 'waiting too'))
  const line = await withRows(defaultLimiter(db, 'line with ids'), 1)
  return [
    {
      name: 'blockUntilReady with once, a new id',
      check: async (key) => (await first.blockUntilReady(key, '1s', { once: newId() })).success,
    },
    {
      name: 'limitAll of two with wait',
      check: async (key) => (await limitAll(requestsOf(first, second, key), { wait: '1s' })).success,
    },
    { name: 'schedule', check: async (key) => (await schedule(line, key, { within: '1h' })).success },
    {
      name: 'schedule with once, a new id',
      check: async (key) => (await schedule(line, key, { within: '1h', once: newId() })).success,
    },
  ]
}

/** Members that count already, new ones that go again, and looks. */
export async function membersOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const devices = new Members({ db, prefix: 'devices', limit: 5, window: '30d', durable: false })
  const add = async (key: string) => (await devices.add(key, 'phone')).success
  await makeKeys({ check: add }, keyNumbers(KEYS))
  return [
    { name: 'Members: add of a member that counts', check: add },
    {
      name: 'Members: add of a new member and remove, pairs',
      async check(key) {
        // A key of its own, because callers that come together could be too many for one key.
        const own = `${key} ${randomUUID()}`
        const { success } = await devices.add(own, 'tablet')
        return success && (await devices.remove(own, 'tablet'))
      },
    },
    { name: 'Members: has', check: (key) => devices.has(key, 'phone') },
    { name: 'Members: list', check: async (key) => (await devices.list(key)).length === 1 },
  ]
}

/** Requests to a route, without a network. The last is what a limit is added to. */
export async function routesOn(db: NodePgDatabase): Promise<readonly Call[]> {
  const ratelimit = await withRows(defaultLimiter(db, 'routes'))
  const options = { ratelimit, headers: false } as const
  const key = ({ headers }: FastifyRequest) => String(headers['x-user'])
  const ofFastify = fastify()
  ofFastify.get('/free', (_, answer) => answer.send('done'))
  ofFastify.get('/', { onRequest: fastifyHook({ ...options, key }) }, (_, answer) => answer.send('done'))
  await ofFastify.ready()
  const ofHono = new Hono()
  ofHono.post('/', honoMiddleware({ ...options, key: (c) => c.req.header('x-user'), once: newId }), (c) =>
    c.text('done'),
  )
  const inject = async (url: string, user: string) =>
    (await ofFastify.inject({ url, headers: { 'x-user': user } })).statusCode === 200
  return [
    { name: 'a route of Fastify with the hook', check: (user) => inject('/', user) },
    {
      name: 'a route of Fastify without a limit',
      check: (user) => inject('/free', user),
      store: 'elsewhere',
    },
    {
      name: 'a route of Hono with once, a new id',
      check: async (user) => (await ofHono.request('/', { method: 'POST', headers: { 'x-user': user } })).ok,
    },
  ]
}
