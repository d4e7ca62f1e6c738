import { usage } from 'drizzle-ratelimit/reports'
import { expect, test } from 'vitest'
import { limitAll, type Ratelimit } from '../../src/index.ts'
import { openReservations } from '../../src/quota/index.ts'
import { allowed } from '../support/allowed.ts'
import { useDatabase } from '../support/databases.ts'
import type { Fault } from '../support/proxy.ts'
import {
  errorOf,
  expectQuiet,
  limiter,
  limiterOn,
  newPrefix,
  openPool,
  SECRET,
  uncaughtBy,
  useProxy,
} from './kit.ts'

// A call that charges nothing says so, whatever happens to its connection.

const database = useDatabase()
const network = useProxy(database)

type Look = (ratelimit: Ratelimit, db: ReturnType<typeof openPool>['db']) => PromiseLike<unknown>

const looks: Record<string, Look> = {
  getRemaining: (ratelimit) => ratelimit.getRemaining(SECRET),
  getRemainingAll: (ratelimit) => ratelimit.getRemainingAll([SECRET, 'other']),
  'limit of 0': (ratelimit) => ratelimit.limit(SECRET, { rate: 0 }),
  'limitAll of 0': (ratelimit) => limitAll([{ ratelimit, key: SECRET, rate: 0 }]),
  cleanup: (ratelimit) => ratelimit.cleanup(),
  usage: ({ prefix }, db) => usage({ db, prefix, limiter, durable: true }),
  openReservations: ({ prefix }, db) => openReservations({ db, prefix, durable: true }),
}

test.each(
  Object.entries(looks).flatMap(([name, look]) =>
    (['cut before', 'cut after', 'stall after'] as const).map((fault): [string, Fault, Look] => [
      name,
      fault,
      look,
    ]),
  ),
)('%s, %s: UNREACHABLE', async (_, fault, look) => {
  const opened = openPool(network.url, { query_timeout: 1000 })
  const ratelimit = limiterOn(opened, newPrefix('look'))
  await ratelimit.limit(SECRET)
  let requests = 0
  network.proxy.fault = () => (requests++ === 0 ? fault : 'pass')
  const error = await errorOf(look(ratelimit, opened.db))
  expect(error).toMatchObject({ code: 'UNREACHABLE', contended: false })
  expect(requests).toBe(1)
  expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 1 })
  await expectQuiet(opened)
})

test('a settlement whose transaction breaks before it charges: UNREACHABLE', async () => {
  const opened = openPool(network.url)
  const ratelimit = limiterOn(opened, newPrefix('status'))
  const reserved = allowed(await opened.db.transaction((tx) => ratelimit.reserve(SECRET, { rate: 5, tx })))
  // Drizzle's own transaction does not listen for the errors of its client.
  await uncaughtBy(async () => {
    let error: unknown
    const settling = opened.db.transaction(async (tx) => {
      network.proxy.fault = (request) =>
        /xact_status/.test(request.toString('latin1')) ? 'cut before' : 'pass'
      error = await errorOf(reserved.commit(2, { tx }))
      throw error
    })
    // Its rollback fails too.
    await expect(settling).rejects.toThrow()
    expect(error).toMatchObject({ code: 'UNREACHABLE' })
  })
  network.proxy.fault = () => 'pass'
  expect(await ratelimit.getRemaining(SECRET)).toMatchObject({ used: 5 })
})
