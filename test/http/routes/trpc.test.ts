import { createTRPCClient, httpLink, type TRPCClientError } from '@trpc/client'
import { initTRPC, TRPCError } from '@trpc/server'
import { createHTTPHandler } from '@trpc/server/adapters/standalone'
import { type RateLimitOptions, rateLimit } from 'drizzle-ratelimit/trpc'
import { expect, test } from 'vitest'
import { useDatabase } from '../../support/databases.ts'
import { away, perHour, serve } from './serve.ts'

const database = useDatabase()

interface Context {
  readonly user: string
}

const t = initTRPC.context<Context>().create({
  errorFormatter: ({ shape, error: { cause } }) => {
    // As docs/frameworks.md has it.
    const retryAfterMs = cause && 'retryAfterMs' in cause ? Number(cause.retryAfterMs) : undefined
    return { ...shape, data: { ...shape.data, retryAfterMs, problem: { ...cause } } }
  },
})

/** The procedures of an application, and a client for them. */
async function clientOf(options: RateLimitOptions<Context>) {
  const limited = t.procedure.use(rateLimit(options))
  const router = t.router({
    left: limited.query(({ ctx }) => ctx.rateLimit?.remaining ?? null),
    fail: limited.mutation(() => {
      throw new TRPCError({ code: 'UNAUTHORIZED' })
    }),
  })
  const createContext = () => ({ user: 'ada' })
  const url = await serve(createHTTPHandler({ router, createContext }))
  return createTRPCClient<typeof router>({ links: [httpLink({ url })] })
}

const key: RateLimitOptions<Context>['key'] = ({ ctx }) => ctx.user

async function dataOf(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    (value) => value,
    (error: TRPCClientError<never>) => error.data,
  )
}

test('resolvers find the answer, and a denial has the problem as its cause', async () => {
  const ratelimit = perHour(database.db, 2)
  const client = await clientOf({ ratelimit, key })
  expect([await client.left.query(), await client.left.query()]).toEqual([1, 0])
  expect(await dataOf(client.left.query())).toMatchObject({
    code: 'TOO_MANY_REQUESTS',
    httpStatus: 429,
    path: 'left',
    retryAfterMs: expect.closeTo(3_600_000, -5),
    problem: { status: 429, limit: 2, remaining: 0, 'violated-policies': [ratelimit.prefix] },
  })
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 2 })
})

test('the answer is that of the last limit that was checked', async () => {
  const skipping = rateLimit({ ratelimit: perHour(database.db, 1), key, skip: () => true })
  const limited = t.procedure.use(rateLimit({ ratelimit: perHour(database.db, 5), key })).use(skipping)
  const router = t.router({ limit: limited.query(({ ctx }) => ctx.rateLimit?.limit) })
  expect(await router.createCaller({ user: 'ada' }).limit()).toBe(5)
})

test('fifty requests at once stay within the limit', async () => {
  const client = await clientOf({ ratelimit: perHour(database.db, 7), key })
  const answers = await Promise.allSettled(Array.from({ length: 50 }, () => client.left.query()))
  expect(answers.filter(({ status }) => status === 'fulfilled')).toHaveLength(7)
})

test('onDenied gives the error', async () => {
  const onDenied = ({ limit }: { readonly limit: number }) =>
    new TRPCError({ code: 'PAYMENT_REQUIRED', message: `only ${limit}` })
  const client = await clientOf({ ratelimit: perHour(database.db, 0), key, onDenied })
  expect(await dataOf(client.left.query())).toMatchObject({ code: 'PAYMENT_REQUIRED' })
})

test('a procedure has its own rate, and a procedure that costs nothing sends no query', async () => {
  const ratelimit = perHour(database.db, 10)
  const client = await clientOf({ ratelimit, key, rate: { left: 0, fail: 4 } })
  expect(await client.left.query()).toBeNull()
  await dataOf(client.fail.mutate())
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 4 })
})

test('only failures count', async () => {
  const ratelimit = perHour(database.db, 2)
  const client = await clientOf({ ratelimit, key, count: 'failures' })
  for (let i = 0; i < 3; i++) expect(await client.left.query()).toBe(1)
  for (const code of ['UNAUTHORIZED', 'UNAUTHORIZED', 'TOO_MANY_REQUESTS']) {
    expect(await dataOf(client.fail.mutate())).toMatchObject({ code })
  }
})

test('with resetOnSuccess a success forgets the failures before it', async () => {
  const ratelimit = perHour(database.db, 5)
  const client = await clientOf({ ratelimit, key, count: 'failures', resetOnSuccess: true })
  await dataOf(client.fail.mutate())
  expect(await ratelimit.getRemaining('ada')).toMatchObject({ used: 1 })
  await client.left.query()
  await expect.poll(() => ratelimit.getRemaining('ada')).toMatchObject({ used: 0 })
})

test.each([
  ['throw', { code: 'INTERNAL_SERVER_ERROR' }],
  ['allow', null],
  ['deny', { code: 'SERVICE_UNAVAILABLE' }],
] as const)('with the database away, onError %s', async (verdict, answer) => {
  const client = await clientOf({ ratelimit: perHour(away(database.db), 5), key, onError: () => verdict })
  const data = await dataOf(client.left.query())
  if (answer) expect(data).toMatchObject(answer)
  else expect(data).toBeNull()
})
