import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { join, resolve } from 'node:path'
import 'reflect-metadata'
import { getRequestListener } from '@hono/node-server'
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo'
import { type CanActivate, Controller, Get, Module, UseGuards } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { GraphQLModule, Query, Resolver } from '@nestjs/graphql'
import { WsAdapter } from '@nestjs/platform-ws'
import { SubscribeMessage, WebSocketGateway } from '@nestjs/websockets'
import { desc } from 'drizzle-orm'
import type { Express } from 'express'
import type { YogaServerInstance } from 'graphql-yoga'
import type { Hono } from 'hono'
import { createRequestHandler, type ServerBuild } from 'react-router'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { WebSocket } from 'ws'
import { rateLimitEphemeral } from '../../../src/index.ts'
import { db, events } from '../../support/docs-app.ts'
import { PATIENTLY } from '../../support/patience.ts'
import { serve, statusesOf } from './serve.ts'

// Recipes of the documents are served as they stand there: those for frameworks without an adapter, and logins.

let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/http-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
})
afterAll(() => rm(folder, { recursive: true }))

/** What a block of a page of docs/, or of one of its sections, exports. */
async function block<Exports>(heading: string, page = 'frameworks', place = 0): Promise<Exports> {
  const section = (await readFile(`docs/${page}.md`, 'utf8')).split(`\n## ${heading}\n`).at(-1) ?? ''
  const code = [...section.matchAll(/^```ts\n([\s\S]*?)^```/gm)][place]?.[1] ?? ''
  const file = join(folder, `${page} ${heading} ${place}.ts`.replaceAll(/[ ,]+/g, '-'))
  await writeFile(file, code)
  return import(file)
}

/** The hook of SvelteKit, in front of an application that answers in this way. */
async function serveSvelteKit(address: string, resolve: () => Promise<Response>): Promise<string> {
  interface Event {
    readonly request: Request
    getClientAddress(): string
  }
  const { handle } = await block<{
    handle(input: { event: Event; resolve(event: Event): Promise<Response> }): Promise<Response>
  }>('SvelteKit')
  return serve(
    getRequestListener((request) => handle({ event: { request, getClientAddress: () => address }, resolve })),
  )
}

test('GraphQL: an operation costs the sum of its fields, and a denied one runs no resolver', async () => {
  const { yoga } = await block<{ yoga: YogaServerInstance<{ user: string }, object> }>('GraphQL')
  const send = async (query: string, user: string, variables?: object) => {
    const request = new Request('http://localhost/graphql', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query, variables }),
    })
    const response = await yoga.fetch(request, { user })
    return { status: response.status, headers: response.headers, answer: await response.json() }
  }
  // The limit of the documents' application is five a minute.
  for (let i = 0; i < 5; i++) expect((await send('{ me }', 'ada')).answer).toEqual({ data: { me: 'Ada' } })
  const denied = await send('{ me }', 'ada')
  expect(denied.status).toBe(429)
  expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(denied.answer).toMatchObject({
    errors: [{ message: 'Too many requests.', extensions: { code: 'RATE_LIMITED' } }],
  })
  expect(denied.answer.data ?? null).toBeNull()

  // Aliases and fragments count, so nobody gets more for less.
  const aliases = await send('{ a: me b: me c: me d: me e: me f: me }', 'eve')
  expect(aliases.answer).toMatchObject({ errors: [{ extensions: { retryAfterMs: null } }] })
  const spread = 'fragment Three on Query { x: me y: me z: me }'
  expect((await send(`{ ...Three ...Three } ${spread}`, 'eve')).status).toBe(429)
  const reports = 'query Reports($first: Int!) { reports(first: $first) }'
  expect((await send(reports, 'eve', { first: 0 })).answer).toEqual({ data: { reports: [] } })
  expect((await send(reports, 'eve', { first: 1 })).status).toBe(429)
  // Nothing pays for something else.
  const both = 'query Both($less: Int!) { a: reports(first: 1) b: reports(first: $less) }'
  expect((await send(both, 'eve', { less: -1 })).status).toBe(429)
  // What is no operation costs nothing.
  expect((await send('{ nothing }', 'eve')).answer.errors[0].message).toMatch(/nothing/)
  expect((await send('{ a: me b: me c: me d: me e: me }', 'eve')).status).toBe(200)
})

test('a request that is sent again is charged once, and does its work once', async () => {
  const { app } = await block<{ app: Hono }>('Requests that are sent again', 'http')
  const send = (org: string, id?: string) =>
    app.request('/reports', {
      method: 'POST',
      headers: { 'x-org': org, ...(id ? { 'idempotency-key': id } : {}) },
    })
  const leftOf = (response: Response) => response.headers.get('ratelimit')?.match(/r=(\d+)/)?.[1]
  expect((await send('ada')).status).toBe(400)
  for (const length of [201, 1500]) expect((await send('ada', 'x'.repeat(length))).status).toBe(400)
  // Two processes, and a client that does not wait.
  const all = await Promise.all(Array.from({ length: 8 }, () => send('ada', '1')))
  expect(new Set(all.map((response) => `${response.status} ${leftOf(response)}`))).toEqual(
    new Set(['200 99']),
  )
  expect(leftOf(await send('ada', '2'))).toBe('98')
  // Another customer's id is another one.
  expect(leftOf(await send('eve', '1'))).toBe('99')
  expect(leftOf(await send('eve', 'x'.repeat(200)))).toBe('98')
  await Promise.all(Array.from({ length: 98 }, (_, place) => send('ada', `${place + 3}`)))
  expect((await send('ada', 'more')).status).toBe(429)
  expect((await send('ada', '1')).status).toBe(200)
  const ids = (await db.select().from(events)).map(({ id }) => id)
  expect(ids.filter((id) => id.startsWith('ada '))).toHaveLength(100)
})

test('SvelteKit: a response whose headers cannot be changed is sent with those of the limit', async () => {
  const elsewhere = await serve((_request, response) => void response.writeHead(404).end('not here'))
  const url = await serveSvelteKit('192.0.2.3', () => fetch(elsewhere))
  const fetched = await fetch(url)
  expect([fetched.status, await fetched.text(), fetched.headers.get('ratelimit')]).toEqual([
    404,
    'not here',
    expect.stringMatching('"api";r=4;'),
  ])
  const redirecting = await serveSvelteKit('192.0.2.3', async () => Response.redirect(`${elsewhere}/home`))
  const { status, headers } = await fetch(redirecting, { redirect: 'manual' })
  expect([status, headers.get('location'), headers.get('ratelimit')]).toEqual([
    302,
    `${elsewhere}/home`,
    expect.stringMatching('"api";r=3;'),
  ])
})

type ServerRouteModule = NonNullable<ServerBuild['routes'][string]>['module']

describe('React Router', () => {
  /** Its server, with a route that has the recipe, and the place of the boundary that shows a page's errors. */
  async function serveRoute(page: 'no page' | 'its own boundary' | 'the boundary above'): Promise<string> {
    type Recipe = Required<Pick<ServerRouteModule, 'action' | 'headers'>>
    const { action, headers } = await block<Recipe>('React Router')
    const limited: ServerRouteModule = {
      default: () => null,
      ...{ action, headers },
      ...(page === 'its own boundary' ? { ErrorBoundary: () => null } : {}),
    }
    // Its types know no routes without a page.
    if (page === 'no page') Reflect.deleteProperty(limited, 'default')
    const root: ServerRouteModule = {
      default: () => null,
      ...(page === 'the boundary above' ? { headers } : {}),
    }
    const handle = createRequestHandler(
      {
        entry: {
          module: { default: (_request, status, headers) => new Response(page, { status, headers }) },
        },
        routes: {
          root: { id: 'root', path: '', module: root },
          limited: { id: 'limited', parentId: 'root', path: 'limited', module: limited },
        },
        assets: { entry: { imports: [], module: '' }, routes: {}, url: '', version: '' },
        routeDiscovery: { mode: 'lazy', manifestPath: '/__manifest' },
        publicPath: '/',
        assetsBuildDirectory: '',
        future: {
          v8_middleware: false,
          v8_passThroughRequests: false,
          v8_trailingSlashAwareDataRequests: false,
        },
        ssr: true,
        isSpaMode: false,
        prerender: [],
      },
      'production',
    )
    return serve(getRequestListener((request) => handle(request)))
  }

  const post = (url: string, from: string) =>
    fetch(url, { method: 'POST', headers: { 'x-forwarded-for': from } })

  test('an action of a route without a page', async () => {
    const url = `${await serveRoute('no page')}/limited`
    expect(await (await post(url, '192.0.2.2')).json()).toEqual({ left: 4 })
    expect(await statusesOf(20, () => post(url, '192.0.2.2'))).toEqual({ 200: 4, 429: 16 })
    const denied = await post(url, '192.0.2.2')
    expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(await denied.json()).toMatchObject({ status: 429, 'violated-policies': ['api'] })
  })

  test.each([
    ['its own boundary', '192.0.2.5'],
    ['the boundary above', '192.0.2.6'],
  ] as const)('an action of a page with %s', async (page, from) => {
    const url = `${await serveRoute(page)}/limited`
    expect(await statusesOf(20, () => post(url, from))).toEqual({ 200: 5, 429: 15 })
    // Without JavaScript a form posts to the page, and otherwise the client to its data.
    for (const path of [url, `${url}.data`]) {
      const { status, headers } = await post(path, from)
      expect([path, status, Number(headers.get('retry-after'))]).toEqual([path, 429, expect.any(Number)])
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    }
  })
})

describe('NestJS', () => {
  /** What a decorator of a method does, which not every compiler of the tests knows. */
  function decorated(type: { prototype: object }, name: string, decorate: MethodDecorator): void {
    const method = Object.getOwnPropertyDescriptor(type.prototype, name)
    decorate(type.prototype, name, method as PropertyDescriptor)
  }

  /** An application with a route, a query and a message that say hello, and its address. */
  async function started(guard: CanActivate): Promise<{ url: string; close(): Promise<void> }> {
    class Hello {
      hello(): string {
        return 'hello'
      }
    }
    Controller()(Hello)
    decorated(Hello, 'hello', Get())
    class Answers {
      hello(): string {
        return 'hello'
      }
    }
    Resolver()(Answers)
    decorated(
      Answers,
      'hello',
      Query(() => String),
    )
    class Gateway {
      handleConnection(client: WebSocket & { user?: string }, { url }: IncomingMessage): void {
        client.user = url ?? ''
        // NestJS emits it here. On `ws`, only a filter of the application can send it.
        client.on('exception', (refusal: unknown) => client.send(JSON.stringify(refusal)))
      }
      hello(): { event: string; data: string } {
        return { event: 'hello', data: 'hello' }
      }
    }
    WebSocketGateway()(Gateway)
    for (const type of [Hello, Answers, Gateway]) UseGuards(guard)(type)
    decorated(Gateway, 'hello', SubscribeMessage('hello'))
    class Main {}
    const graphql = GraphQLModule.forRoot<ApolloDriverConfig>({ driver: ApolloDriver, autoSchemaFile: true })
    Module({ controllers: [Hello], imports: [graphql], providers: [Answers, Gateway] })(Main)
    const nest = await NestFactory.create(Main, { logger: false })
    nest.useWebSocketAdapter(new WsAdapter(nest))
    await nest.listen(0, '127.0.0.1')
    return { url: await nest.getUrl(), close: () => nest.close() }
  }

  const query = (url: string, from: string) =>
    fetch(`${url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-forwarded-for': from },
      body: JSON.stringify({ query: '{ hello }' }),
    })

  /** The answers to so many messages on one connection. */
  async function messages(url: string, path: string, count: number): Promise<unknown[]> {
    const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`)
    const answers: unknown[] = []
    try {
      await once(socket, 'open')
      for (let sent = 0; sent < count; sent++) {
        socket.send(JSON.stringify({ event: 'hello' }))
        const [answer] = await once(socket, 'message')
        answers.push(JSON.parse(String(answer)))
      }
    } finally {
      socket.terminate()
    }
    return answers
  }

  beforeEach(async () => {
    const { db } = await import(join(folder, 'app.ts'))
    await db.delete(rateLimitEphemeral)
  })

  test('a guard limits routes', async () => {
    const { RateLimitGuard } = await block<{ RateLimitGuard: new () => CanActivate }>('NestJS')
    const { url, close } = await started(new RateLimitGuard())
    try {
      const served = await fetch(url)
      expect([await served.text(), served.headers.get('ratelimit')]).toEqual([
        'hello',
        expect.stringMatching('"api";r=4;'),
      ])
      expect(await statusesOf(20, () => fetch(url))).toEqual({ 200: 4, 429: 16 })
      const denied = await fetch(url)
      expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(0)
      expect(await denied.json()).toEqual({ statusCode: 429, message: 'Too many requests' })
    } finally {
      await close()
    }
  })

  test('the same guard limits the resolvers of GraphQL, and leaves messages to a guard of their own', async () => {
    const { RateLimitGuard } = await block<{ RateLimitGuard: new () => CanActivate }>('NestJS')
    const { url, close } = await started(new RateLimitGuard())
    try {
      const served = await query(url, '192.0.2.4')
      expect(await served.json()).toEqual({ data: { hello: 'hello' } })
      expect(served.headers.get('ratelimit')).toMatch('"api";r=4;')
      for (let i = 0; i < 4; i++) await query(url, '192.0.2.4')
      expect(await (await query(url, '192.0.2.4')).json()).toMatchObject({
        errors: [{ message: 'Too many requests' }],
        data: null,
      })
      const hello = { event: 'hello', data: 'hello' }
      expect(await messages(url, '/?ada', 2)).toEqual([hello, hello])
    } finally {
      await close()
    }
  })

  test('a guard limits messages', async () => {
    type Guard = new () => CanActivate
    const { MessageGuard } = await block<{ MessageGuard: Guard }>('NestJS', 'frameworks', 1)
    const { url, close } = await started(new MessageGuard())
    try {
      const hello = { event: 'hello', data: 'hello' }
      const refused = expect.objectContaining({ status: 'error', message: 'Too many requests' })
      const answers = await messages(url, '/?ada', 6)
      expect(answers).toEqual([hello, hello, hello, hello, hello, refused])
      expect(await messages(url, '/?bob', 1)).toEqual([hello])
    } finally {
      await close()
    }
  })
})

describe('a login', () => {
  /** Tries to sign in from 127.0.0.1, and says whether it could. */
  type Login = (email: string, password: string) => Promise<boolean>

  const LOGINS: Readonly<Record<string, () => Promise<Login>>> = {
    'of docs/http.md': async () => {
      const { app } = await block<{ app: Express }>('Login limits', 'http')
      const url = `${await serve(app)}/login`
      return async (email, password) => {
        const headers = { 'content-type': 'application/json' }
        const { ok } = await fetch(url, {
          method: 'POST',
          headers,
          body: JSON.stringify({ email, password }),
        })
        return ok
      }
    },
    'of docs/lockouts.md': async () => {
      const { login } = await block<{ login(...args: string[]): Promise<string> }>('Lockouts', 'lockouts')
      return async (email, password) => (await login('127.0.0.1', email, password)) === 'welcome'
    },
  }

  test.each(Object.entries(LOGINS))('%s counts failures, until a success', async (name, loginOf) => {
    const login = await loginOf()
    const { db } = await import(join(folder, 'app.ts'))
    // The recipes have the same limits.
    await db.delete(rateLimitEphemeral)
    /** Failures of the addresses and of the accounts. */
    const counts = async () => {
      const rows = await db.select().from(rateLimitEphemeral).orderBy(desc(rateLimitEphemeral.prefix))
      return rows.map(({ prefix, count }: { prefix: string; count: number }) => [prefix, count])
    }
    const ada = `ada of ${name}@example.com`
    const address = (failures: number) => ['login address', failures]
    const account = (failures: number) => ['login account', failures]

    expect(await login(ada, 'guess')).toBe(false)
    expect(await counts()).toEqual([address(1), account(1)])
    expect(await login(` ${ada.toUpperCase()}`, 'correct horse')).toBe(true)
    await vi.waitFor(async () => expect(await counts()).toEqual([address(1)]), PATIENTLY)
    expect(await login(ada, 'guess')).toBe(false)
    expect(await counts()).toEqual([address(2), account(1)])

    // Four more failures reach the limit, whatever was before the success.
    const others = await Promise.all(Array.from({ length: 12 }, () => login(ada, 'guess')))
    expect(others).not.toContain(true)
    expect(await counts()).toEqual([address(6), expect.anything()])
    expect(await login(ada, 'correct horse')).toBe(false)
    expect(await login(`bob of ${name}@example.com`, 'correct horse')).toBe(true)
  })
})
