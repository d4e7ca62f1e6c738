import { getRequestListener } from '@hono/node-server'
import { getConnInfo } from '@hono/node-server/conninfo'
import * as ofExpress from 'drizzle-ratelimit/express'
import * as ofFastify from 'drizzle-ratelimit/fastify'
import * as ofHono from 'drizzle-ratelimit/hono'
import { clientKey } from 'drizzle-ratelimit/http'
import express, { type ErrorRequestHandler, type Request, type Response } from 'express'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { type Context, Hono } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { afterAll } from 'vitest'
import type { Ratelimit } from '../../../src/index.ts'
import { serve } from './serve.ts'

/** A request as tests of every framework see it. */
export interface Seen {
  readonly path: string
  readonly password: string | undefined
  readonly user: string | undefined
  /** What `clientKey` makes of it. */
  address(): string
  /** Where handlers find the answer of the limit. */
  answer(): object | undefined
}

interface Sent {
  readonly status?: number
  readonly body?: string
  readonly location?: string
}

type Key = (request: Seen) => string | undefined

/** Options of each framework's `rateLimit`, with a request that is the same for all. */
export interface Options {
  readonly limits: readonly { readonly ratelimit: Ratelimit; readonly key: Key }[]
  readonly count?: 'failures' | 'successes'
  readonly headers?: 'legacy'
  /** By the address that the response redirects to. */
  readonly failed?: (location: string | undefined) => boolean
  readonly onDenied?: (denied: { readonly limit: number }, request: Seen) => string
  readonly onError?: (error: unknown, request: Seen) => 'throw' | 'allow' | 'deny'
}

type Handler = (request: Seen) => Sent

/** Serves one limited route, `/`, whose errors are 500 with their code. */
type Framework = (options: Options, handler: Handler) => Promise<string>

const textOf = (error: Error) => ('code' in error ? String(error.code) : error.message)

/** The options that a framework understands, of what it calls a request. */
function optionsOf<Raw>({ limits, count, headers, onError }: Options, seen: (raw: Raw) => Seen) {
  return {
    limits: limits.map(({ ratelimit, key }) => ({ ratelimit, key: (raw: Raw) => key(seen(raw)) })),
    ...(count && { count }),
    ...(headers && { headers }),
    ...(onError && { onError: (error: unknown, raw: Raw) => onError(error, seen(raw)) }),
  }
}

const onExpress: Framework = (options, handler) => {
  const { failed, onDenied } = options
  const seen = (req: Request): Seen => ({
    ...{ path: req.path, password: req.query['password'] as string | undefined, user: req.get('x-user') },
    ...{ address: () => clientKey(req), answer: () => req.res?.locals['rateLimit'] },
  })
  const answer = (res: Response, { status = 200, body = '', location }: Sent) =>
    location === undefined ? res.status(status).send(body) : res.redirect(location)
  const answerError: ErrorRequestHandler = (error: Error, _req, res, _next) => {
    res.status(500).send(textOf(error))
  }
  const limit = ofExpress.rateLimit({
    ...optionsOf(options, seen),
    ...(failed && { failed: (res) => failed(res.get('location')) }),
    ...(onDenied && { onDenied: (denied, req, res) => res.send(onDenied(denied, seen(req))) }),
  })
  const app = express()
  app.use(limit)
  app.get('/', (req, res) => void answer(res, handler(seen(req))))
  app.use(answerError)
  return serve(app)
}

const onFastify: Framework = async (options, handler) => {
  const { failed, onDenied } = options
  const seen = (request: FastifyRequest): Seen => ({
    path: request.url,
    password: (request.query as { password?: string }).password,
    user: request.headers['x-user'] as string | undefined,
    ...{ address: () => clientKey(request, { trustedHops: 0 }), answer: () => request.rateLimit },
  })
  const answer = (reply: FastifyReply, { status = 200, body = '', location }: Sent) =>
    location === undefined ? reply.code(status).send(body) : reply.redirect(location)
  const app = fastify({ forceCloseConnections: true })
  app.setErrorHandler((error: Error, _request, reply) => reply.code(500).send(textOf(error)))
  const limit = ofFastify.rateLimit({
    ...optionsOf(options, seen),
    ...(failed && { failed: (reply) => failed(reply.getHeader('location') as string | undefined) }),
    ...(onDenied && { onDenied: (denied, request, reply) => reply.send(onDenied(denied, seen(request))) }),
  })
  app.addHook('onRequest', limit)
  app.get('/', async (request, reply) => answer(reply, handler(seen(request))))
  afterAll(() => app.close())
  return app.listen({ host: '127.0.0.1', port: 0 })
}

const onHono: Framework = (options, handler) => {
  const { failed, onDenied } = options
  const seen = (c: Context): Seen => ({
    ...{ path: c.req.path, password: c.req.query('password'), user: c.req.header('x-user') },
    address: () => clientKey(c.req.raw, { address: getConnInfo(c).remote.address }),
    answer: () => c.var.rateLimit,
  })
  const answer = (c: Context, { status = 200, body = '', location }: Sent) =>
    location === undefined ? c.text(body, status as ContentfulStatusCode) : c.redirect(location)
  const app = new Hono()
  app.onError((error, c) => c.text(textOf(error), 500))
  const limit = ofHono.rateLimit({
    ...optionsOf(options, seen),
    ...(failed && { failed: (c) => failed(c.res.headers.get('location') ?? undefined) }),
    ...(onDenied && { onDenied: (denied, c) => c.text(onDenied(denied, seen(c))) }),
  })
  app.use(limit)
  app.get('/', (c) => answer(c, handler(seen(c))))
  return serve(getRequestListener(app.fetch))
}

export const FRAMEWORKS: Readonly<Record<string, Framework>> = {
  'the middleware of Express': onExpress,
  'the hook of Fastify': onFastify,
  'the middleware of Hono': onHono,
}
