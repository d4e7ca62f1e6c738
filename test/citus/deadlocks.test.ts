import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit, RatelimitError } from '../../src/index.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// Transactions that hold rows of several workers. No worker sees the whole circle.

const servers = [undefined, ...CITUS_WORKERS]

describe.skipIf(!CITUS_URL || !CITUS_WORKERS[1])('needs CITUS_URL and CITUS_WORKERS: deadlocks', () => {
  const laid = useLayout(8)
  const { tables, use } = laid
  const databases = servers.map((url) => laid.at(url))
  const limitersOf = (prefix: string) =>
    databases.map(
      (db) =>
        new Ratelimit({
          ...{ db, tables, use, prefix, durable: true },
          limiter: Ratelimit.fixedWindow(10_000, '1h'),
        }),
    )

  /** Keys in the order of the workers that have them. */
  async function keysByWorker(): Promise<string[]> {
    const keys = Array.from({ length: 24 }, (_, i) => `key ${i}`)
    const placed = await laid.rows(
      `select key, (select groupid from pg_dist_placement
          where shardid = get_shard_id_for_distribution_column('${laid.name}.rate_limit_durable', key)) as worker
        from unnest(array[${keys.map((key) => `'${key}'`).join()}]) as key order by worker, key`,
    )
    return placed.map(({ key }) => String(key))
  }

  test.each([
    ['by the coordinator', 0, 0],
    ['by two servers', 0, 2],
  ])(
    'two transactions in opposite orders, %s: one ends as DEADLOCK, with nothing charged',
    async (name, ...by) => {
      const keys = await keysByWorker()
      const [here, there] = [keys[0] as string, keys.at(-1) as string]
      const limits = limitersOf(name)
      const [plain] = limits as [Ratelimit]
      await Promise.all([here, there].map((key) => plain.limit(key)))
      let waiting = 0
      let release = () => {}
      const bothHold = new Promise<void>((resolve) => {
        release = resolve
      })
      const charge = (server: number, order: readonly [string, string]) =>
        (databases[server] as (typeof databases)[0]).transaction(async (tx) => {
          const limit = limits[server] as Ratelimit
          await limit.limit(order[0], { tx, rate: 2 })
          if (++waiting === 2) release()
          await bothHold
          await limit.limit(order[1], { tx, rate: 2 })
        })
      const ended = await Promise.allSettled([
        charge(by[0] as number, [here, there]),
        charge(by[1] as number, [there, here]),
      ])
      const errors = ended.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
      expect(errors.map((each) => each instanceof RatelimitError && [each.code, each.sqlState])).toEqual([
        ['DEADLOCK', '40P01'],
      ])
      const used = (await plain.getRemainingAll([here, there])).map((each) => each.used)
      expect(used).toEqual([3, 3])
      // Nothing is held any more.
      for (const limit of limits)
        expect((await limit.limit(here)).success && (await limit.limit(there)).success).toBe(true)
    },
  )

  test('lists in all orders by three servers, with new keys: all end, and all are charged', async () => {
    const keys = await keysByWorker()
    const limits = limitersOf('orders')
    let seed = 1
    const draw = () => {
      seed = (seed * 48271) % 2147483647
      return seed / 2147483647
    }
    const charged = new Map<string, number>()
    const charge = async (limit: Ratelimit) => {
      const some = keys
        .map((key) => ({ key, at: draw() }))
        .toSorted((one, other) => one.at - other.at)
        .slice(0, 2 + Math.floor(draw() * 5))
      const requests = some.map(({ key }) => ({ ratelimit: limit, key }))
      const { success } = await limitAll(requests)
      if (success) for (const { key } of some) charged.set(key, (charged.get(key) ?? 0) + 1)
      return success
    }
    const callers = Array.from({ length: 24 }, async (_, caller) => {
      for (let times = 0; times < 10; times++)
        expect(await charge(limits[caller % limits.length] as Ratelimit)).toBe(true)
    })
    await Promise.all(callers)
    const used = await (limits[0] as Ratelimit).getRemainingAll(keys)
    expect(used.map((each) => each.used)).toEqual(keys.map((key) => charged.get(key) ?? 0))
  })
})
