import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import 'reflect-metadata'
import { getRequestListener } from '@hono/node-server'
import { type CanActivate, Controller, Get, Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { serve, statusesOf } from './serve.ts'

// The blocks of docs/frameworks.md for frameworks without an adapter are served as they stand there.

let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/http-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
})
afterAll(() => rm(folder, { recursive: true }))

/** What the first block under a heading exports. */
async function block<Exports>(heading: string): Promise<Exports> {
  const section = (await readFile('docs/frameworks.md', 'utf8')).split(`\n## ${heading}\n`)[1] ?? ''
  const [, code = ''] = /^```ts\n([\s\S]*?)^```/m.exec(section) ?? []
  const file = join(folder, `${heading.replaceAll(' ', '-')}.ts`)
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
