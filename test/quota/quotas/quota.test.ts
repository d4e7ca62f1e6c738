import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { limitAll, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'

// What only a `Quota` has, and how it differs from a `Ratelimit` by default.

const database = useDatabase()
const limiter = calendarWindow(10, 'month')

const rowsIn = (table: string, prefix: string) =>
  database.rows(`select key from rate_limit_${table} where prefix = $1`, [prefix])

test('a quota keeps its counts in the durable table unless it is told otherwise', async () => {
  const common = { db: database.db, limiter }
  await new Quota({ ...common, prefix: 'by default' }).limit('key')
  await new Quota({ ...common, prefix: 'told', durable: false }).limit('key')
  await new Quota({ ...common, prefix: 'flushed', synchronousCommit: true }).limit('key')
  await new Ratelimit({ ...common, prefix: 'plain' }).limit('key')
  for (const [prefix, table, other] of [
    ['by default', 'durable', 'ephemeral'],
    ['told', 'ephemeral', 'durable'],
    ['flushed', 'durable', 'ephemeral'],
    ['plain', 'ephemeral', 'durable'],
  ] as const) {
    expect(await rowsIn(table, prefix), prefix).toHaveLength(1)
    expect(await rowsIn(other, prefix), prefix).toHaveLength(0)
  }
})

test.each([
  ['keepEnded', { keepEnded: true }],
  ['keepEnded: false', { keepEnded: false }],
  ['grace', { grace: '1h' }],
  ['thresholds', { thresholds: [0.8] }],
])('a Ratelimit refuses %s, and says what has it', (_, options) => {
  const config = { db: database.db, limiter, prefix: 'refused', ...options } as object as RatelimitConfig
  expect(() => new Ratelimit(config)).toThrow(
    expect.objectContaining({ code: 'INVALID_OPTION', message: expect.stringContaining('Quota') }),
  )
})

test.each([{ id: 'job', expires: '1m' }, { id: 'job' }, { expires: '1m' }])(
  'reserve of a Ratelimit refuses a name, and says what has it: %j',
  async (name) => {
    const config = { db: database.db, prefix: 'unnamed' }
    const reserved = new Ratelimit({ ...config, limiter }).reserve('key', name as object)
    const message = expect.stringContaining('Quota')
    await expect(reserved).rejects.toMatchObject({ code: 'INVALID_OPTION', message })
    expect(await rowsIn('ephemeral', 'unnamed')).toEqual([])
  },
)

test('a quota is a Ratelimit, in lists too', async () => {
  const quota = new Quota({ db: database.db, limiter, prefix: 'listed' })
  const api = new Ratelimit({ db: database.db, limiter: Ratelimit.fixedWindow(5, '1h'), prefix: 'beside' })
  expect(quota).toBeInstanceOf(Ratelimit)
  const requests = [quota, api].map((ratelimit) => ({ ratelimit, key: 'key' }))
  expect(await limitAll(requests)).toMatchObject({ results: [{ remaining: 9 }, { remaining: 4 }] })
})
