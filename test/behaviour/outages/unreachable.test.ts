import { createServer, type Server } from 'node:net'
import type { PGlite } from '@electric-sql/pglite'
import { drizzle as drizzleNodePostgres } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { type Database, limitAll, Ratelimit } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { type Db, emptyDatabase, hasServer, migrate, open, useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const limiter = Ratelimit.fixedWindow(5, '1h')

function limitOn(db: Database, prefix: string): Ratelimit {
  return new Ratelimit({ db, limiter, prefix, cleanupProbability: 0 })
}

/** How a check and a limitAll fail. */
async function codesOf(ratelimit: Ratelimit): Promise<unknown[]> {
  const calls = [ratelimit.limit('key'), limitAll([{ ratelimit, key: 'key' }])]
  return (await Promise.allSettled(calls)).map((answer) =>
    answer.status === 'rejected' ? answer.reason.code : 'answered',
  )
}

describe('an error as drivers and poolers make it, behind Drizzle', () => {
  const named = (message: string, more: object = {}) => Object.assign(new Error(message), more)
  const refused = { code: 'ECONNREFUSED', syscall: 'connect' }
  const unreachable = [
    ...['CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'].map((code) =>
      named(code, { code }),
    ),
    named('write CONNECTION_ENDED 127.0.0.1:5432', { code: 'CONNECTION_ENDED' }),
    ...['ECONNRESET', 'ETIMEDOUT', 'EPIPE', 'ENOENT', 'EACCES', 'EHOSTUNREACH'].map((code) =>
      named(`connect ${code}`, { code, syscall: 'connect' }),
    ),
    named('getaddrinfo ESERVFAIL', { code: 'ESERVFAIL', syscall: 'getaddrinfo' }),
    Object.assign(new AggregateError([named('one', refused), named('other', refused)]), {
      code: 'ECONNREFUSED',
    }),
    Object.assign(
      new AggregateError([
        named('connect ETIMEDOUT', { code: 'ETIMEDOUT', syscall: 'connect' }),
        named('one', refused),
      ]),
      { code: 'ETIMEDOUT' },
    ),
    named('fetch failed', { cause: named('connect ETIMEDOUT', { code: 'ETIMEDOUT', syscall: 'connect' }) }),
    named('fetch failed', { cause: named('Connect Timeout Error', { code: 'UND_ERR_CONNECT_TIMEOUT' }) }),
    named('Error connecting to database: fetch failed', {
      code: undefined,
      sourceError: named('fetch failed', { cause: named('one', refused) }),
    }),
    // What neon-http says about an address that fetch does not like.
    ...[
      named('fetch() URL is invalid', { code: 'ERR_INVALID_URL' }),
      named('Failed to parse URL from nonsense', {
        cause: named('Invalid URL', { code: 'ERR_INVALID_URL' }),
      }),
    ].map((sourceError) => named(`Error connecting to database: ${sourceError.message}`, { sourceError })),
    // What Neon's WebSocket driver throws is an event.
    { type: 'error', message: 'connect ECONNREFUSED', error: named('connect ECONNREFUSED', refused) },
  ]
  const unknown = [
    { type: 'error', message: '' },
    {
      type: 'error',
      message: 'read ECONNRESET',
      error: named('read ECONNRESET', { code: 'ECONNRESET', syscall: 'read' }),
    },
    named('Error connecting to database: TypeError: Failed to fetch', {
      sourceError: named('Failed to fetch'),
    }),
    named('Connection terminated unexpectedly'),
    named('Query read timeout'),
    ...['ECONNRESET', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'].map((code) =>
      named(`read ${code}`, { code, syscall: 'read' }),
    ),
    named('write EPIPE', { code: 'EPIPE', syscall: 'write' }),
    Object.assign(new AggregateError([named('one', refused), named('read', { code: 'ECONNRESET' })]), {
      code: 'ECONNREFUSED',
    }),
    named('fetch failed', { cause: named('other side closed', { code: 'UND_ERR_SOCKET' }) }),
    ...['server conn crashed?', 'query_timeout', 'client_idle_timeout', 'query_wait_timeout'].map((message) =>
      named(message, { code: '08P01' }),
    ),
    // No message proves that nothing was sent: a trigger or a later error may have the same one.
    ...[
      'timeout exceeded when trying to connect',
      'timeout expired',
      'Cannot use a pool after calling end on the pool',
      'Client was closed and is not queryable',
      'PGlite is closed',
      'SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string',
    ].map((message) => named(message)),
  ]
  test.each([
    ...unreachable.map((error) => ['UNREACHABLE', error.message, error] as const),
    ...unknown.map((error) => ['OUTCOME_UNKNOWN', error.message, error] as const),
  ])('%s: %s', async (code, _, cause) => {
    const { db } = watch(database.db, () => Promise.reject(new Error('Failed query', { cause })))
    await expect(limitOn(db, 'made').limit('key')).rejects.toMatchObject({ code })
  })

  test("the words of a pooler with another code are not a pooler's error", async () => {
    const cause = named('query_wait_timeout', { code: 'P0001' })
    const { db } = watch(database.db, () => Promise.reject(new Error('Failed query', { cause })))
    await expect(limitOn(db, 'raised').limit('key')).rejects.toMatchObject({ code: 'DATABASE' })
  })
})

test.each<[string, (ratelimit: Ratelimit, tx: Database) => Promise<unknown>]>([
  ['limit', (ratelimit, tx) => ratelimit.limit('key', { rate: 0, tx })],
  ['limitAll', (ratelimit, tx) => limitAll([{ ratelimit, key: 'key', rate: 0 }], { tx })],
  ['getRemaining', (ratelimit, tx) => ratelimit.getRemaining('key', { tx })],
  ['getRemainingAll', (ratelimit, tx) => ratelimit.getRemainingAll(['key'], { tx })],
])(
  'a look by %s in a transaction whose connection breaks says that it has charged nothing',
  async (_, look) => {
    const cut = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET', syscall: 'read' })
    const { db } = watch(database.db, () => Promise.reject(cut))
    const looking = look(limitOn(database.db, 'looks'), { ...db, rollback: undefined })
    await expect(looking).rejects.toMatchObject({ code: 'UNREACHABLE' })
  },
)

test('a closed client', async () => {
  const closed = await emptyDatabase()
  await migrate(closed)
  const ratelimit = limitOn(closed.db, 'closed')
  await ratelimit.limit('key')
  if (!hasServer()) {
    // PGlite says so by a message only.
    await (closed.db as Db & { $client: PGlite }).$client.close()
    expect(await codesOf(ratelimit)).toEqual(['OUTCOME_UNKNOWN', 'OUTCOME_UNKNOWN'])
    return
  }
  const { db, end } = open(closed.url, 1)
  await end()
  expect(await codesOf(limitOn(db, 'closed'))).toEqual(['UNREACHABLE', 'UNREACHABLE'])
  await closed.close()
})

describe.runIf(hasServer())('over a network', () => {
  /** Accepts connections and never answers. */
  let silent: Server
  let port = 0
  beforeAll(async () => {
    silent = createServer((socket) => void socket.on('error', () => {}))
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const address = silent.address()
    port = typeof address === 'object' ? (address?.port ?? 0) : 0
  })
  afterAll(() => void silent.close())

  function impatient(at: number): { db: Db; end(): Promise<void> } {
    const url = `postgres://user@127.0.0.1:${at}/app`
    if (inject('driver') === 'node-postgres') {
      const client = new pg.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 20 })
      return { db: drizzleNodePostgres({ client }), end: () => client.end() }
    }
    const client = postgres(url, { max: 1, connect_timeout: 0.02, backoff: () => 0 })
    return { db: drizzlePostgresJs({ client }), end: () => client.end({ timeout: 0 }) }
  }

  test('a server that never answers', async () => {
    const { db, end } = impatient(port)
    expect(await codesOf(limitOn(db, 'silent'))).toEqual(['UNREACHABLE', 'UNREACHABLE'])
    await end()
  })

  test('an address without a server', async () => {
    const { db, end } = impatient(1)
    expect(await codesOf(limitOn(db, 'nobody'))).toEqual(['UNREACHABLE', 'UNREACHABLE'])
    await end()
  })
})

test('a reservation that could not be released is released later', async () => {
  const ended = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  let isThere = true
  const { db } = watch(database.db, () => isThere || Promise.reject(ended))
  const ratelimit = limitOn(db, 'reserved')
  const reserved = allowed(await ratelimit.reserve('key', { rate: 4 }))
  isThere = false
  await expect(reserved.release()).rejects.toMatchObject({ code: 'UNREACHABLE' })
  isThere = true
  expect(await reserved.release()).toMatchObject({ success: true, remaining: 5 })
  await expect(reserved.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test.each([undefined, null])('a database without a client is refused at once: %s', (client) => {
  const db = { ...watch(database.db).db, _: { session: { client, execute: () => {} } } }
  expect(() => limitOn(db, 'nothing')).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }))
})
