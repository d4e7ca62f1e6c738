import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import 'reflect-metadata'
import { getRequestListener } from '@hono/node-server'
import { type CanActivate, Controller, Get, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { desc } from 'drizzle-orm'
import type { Express } from 'express'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { rateLimitEphemeral } from '../../../src/index.ts'
import { serve, statusesOf } from './serve.ts'

// Recipes of the documents are served as they stand there: those for frameworks without an adapter, and logins.

let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/http-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
})
afterAll(() => rm(folder, { recursive: true }))

/** What the first block of a page of docs/, or of one of its sections, exports. */
async function block<Exports>(heading: string, page = 'frameworks'): Promise<Exports> {
  const section = (await readFile(`docs/${page}.md`, 'utf8')).split(`\n## ${heading}\n`).at(-1) ?? ''
  const [, code = ''] = /^```ts\n([\s\S]*?)^```/m.exec(section) ?? []
  const file = join(folder, `${page} ${heading}.ts`.replaceAll(/[ ,]+/g, '-'))
  await writeFile(file, code)
  return import(file)
}

test('SvelteKit', async () => {
  interface Event {
    readonly request: Request
    getClientAddress(): string
  }
  const { handle } = await block<{
    handle(input: { event: Event; resolve(event: Event): Promise<Response> }): Promise<Response>
  }>('SvelteKit')
  const resolve = async () => new Response('hello')
  const url = await serve(
    getRequestListener((request) =>
      handle({ event: { request, getClientAddress: () => '192.0.2.1' }, resolve }),
    ),
  )
  const served = await fetch(url)
  expect(served.headers.get('ratelimit')).toMatch('"api";r=4;')
  expect(await statusesOf(20, () => fetch(url))).toEqual({ 200: 4, 429: 16 })
  expect(await (await fetch(url)).json()).toMatchObject({ status: 429, 'violated-policies': ['api'] })
})

test('React Router', async () => {
  const { action } = await block<{ action(input: { request: Request }): Promise<object> }>('React Router')
  // As it does with what an action returns, and with a response that it throws.
  const url = await serve(
    getRequestListener((request) =>
      action({ request }).then(Response.json, (thrown: unknown) => thrown as Response),
    ),
  )
  const headers = { 'x-forwarded-for': '192.0.2.2' }
  expect(await (await fetch(url, { headers })).json()).toEqual({ left: 4 })
  expect(await statusesOf(20, () => fetch(url, { headers }))).toEqual({ 200: 4, 429: 16 })
})

test('NestJS', async () => {
  const { RateLimitGuard } = await block<{ RateLimitGuard: new () => CanActivate }>('NestJS')
  // What decorators do, which not every compiler of the tests knows.
  class Hello {
    hello(): string {
      return 'hello'
    }
  }
  Controller()(Hello)
  const method = Object.getOwnPropertyDescriptor(Hello.prototype, 'hello')
  Get()(Hello.prototype, 'hello', method as PropertyDescriptor)
  class Main {}
  Module({ controllers: [Hello] })(Main)
  const nest = await NestFactory.create(Main, { logger: false })
  nest.useGlobalGuards(new RateLimitGuard())
  await nest.listen(0, '127.0.0.1')
  try {
    const url = await nest.getUrl()
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
    await nest.close()
  }
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
    'of docs/quota-recipes.md': async () => {
      const heading = 'Failed logins, outside the transaction'
      const { logIn } = await block<{ logIn(...args: string[]): Promise<void> }>(heading, 'quota-recipes')
      return (email, password) =>
        logIn('127.0.0.1', email, password).then(
          () => true,
          () => false,
        )
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
    await vi.waitFor(async () => expect(await counts()).toEqual([address(1)]))
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
