import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// What holds whatever runs at the same time, and whatever the clocks of the servers say.

const servers = [undefined, ...CITUS_WORKERS]

describe.skipIf(!CITUS_URL)('needs CITUS_URL: races', () => {
  const laid = useLayout(8)
  const { tables, use } = laid
  const databases = new Map<string | undefined, ReturnType<typeof laid.at>>()
  const databaseAt = (url: string | undefined) => {
    const db = databases.get(url) ?? laid.at(url)
    databases.set(url, db)
    return db
  }
  const limiterAt = (url: string | undefined, prefix: string, tokens: number, durable = false) =>
    new Quota({
      ...{ db: databaseAt(url), tables, use, prefix, durable },
      limiter: Ratelimit.fixedWindow(tokens, '1h'),
    })

  test('new keys by three entry nodes: never over, and all of the limit', async () => {
    const limits = servers.map((url) => limiterAt(url, 'new', 5))
    const keys = Array.from({ length: 40 }, (_, i) => `key ${i}`)
    const asked = keys.flatMap((key) =>
      limits.flatMap((one) => Array.from({ length: 6 }, () => one.limit(key))),
    )
    const passed = (await Promise.all(asked)).filter(({ success }) => success)
    expect(passed).toHaveLength(40 * 5)
  })

  test('one key, with resets of others and sweeps: never over', async () => {
    const limits = servers.map((url) => limiterAt(url, 'one', 50))
    const asked = Array.from({ length: 300 }, (_, i) => (limits[i % limits.length] as Quota).limit('k'))
    const swept = limits.map((one) => one.cleanup())
    expect((await Promise.all(asked)).filter(({ success }) => success)).toHaveLength(50)
    await Promise.all(swept)
  })

  test('a row is made and taken by the clock of its own server', async () => {
    const limits = servers.map((url) => limiterAt(url, 'clock', 3))
    const keys = Array.from({ length: 16 }, (_, i) => `key ${i}`)
    for (const key of keys) {
      const passed: boolean[] = []
      for (const one of [...limits, ...limits]) passed.push((await one.limit(key)).success)
      expect(passed.filter(Boolean)).toHaveLength(3)
    }
  })

  test('a name is charged once and settled once, by three entry nodes at the same time', async () => {
    const limits = servers.map((url) => limiterAt(url, 'named', 100, true))
    for (const key of ['k0', 'k1', 'k2', 'k3']) {
      const open = { rate: 8, id: 'job', expires: '1h' } as const
      const reserved = await Promise.all(limits.map((one) => one.reserve(key, open)))
      expect(reserved.filter((each) => each.success && !each.repeated)).toHaveLength(1)
      const settled = await Promise.all(limits.map((one) => one.settle({ key, id: 'job' }, 5)))
      expect(settled.filter(({ repeated }) => !repeated)).toHaveLength(1)
      expect(await limits[0]?.getRemaining(key)).toMatchObject({ used: 5 })
    }
  })

  test('lists in opposite orders over shards end, all or none', async () => {
    const a = limiterAt(undefined, 'order a', 500)
    const b = limiterAt(undefined, 'order b', 60, true)
    const pairs = Array.from({ length: 120 }, (_, i) => (i % 2 ? ['x', 'y'] : ['y', 'x']) as [string, string])
    const answers = await Promise.all(
      pairs.map(([one, other]) =>
        limitAll([
          { ratelimit: a, key: one },
          { ratelimit: b, key: other },
        ]),
      ),
    )
    const passed = answers.filter(({ success }) => success).length
    const [ax, ay] = await a.getRemainingAll(['x', 'y'])
    const [bx, by] = await b.getRemainingAll(['x', 'y'])
    expect(passed).toBe(120)
    expect([ax?.used, ay?.used, bx?.used, by?.used]).toEqual([60, 60, 60, 60])
  })

  test('lists of new keys over shards that deny: nothing is charged', async () => {
    const a = limiterAt(undefined, 'none a', 100)
    const b = limiterAt(undefined, 'none b', 1, true)
    const asked = Array.from({ length: 40 }, (_, i) =>
      limitAll([
        { ratelimit: a, key: `key ${i % 10}` },
        { ratelimit: b, key: 'shared' },
      ]),
    )
    const passed = (await Promise.all(asked)).filter(({ success }) => success)
    const used = await a.getRemainingAll(Array.from({ length: 10 }, (_, i) => `key ${i}`))
    expect(passed).toHaveLength(1)
    expect(used.reduce((sum, each) => sum + each.used, 0)).toBe(1)
  })

  test('a charge joins a transaction on a colocated table of the application, on one worker', async () => {
    const { name, rows } = laid
    await rows(`create table ${name}.jobs (org text, id bigserial, primary key (org, id))`)
    await rows(
      `select create_distributed_table('${name}.jobs', 'org', colocate_with => '${name}.rate_limit_durable')`,
    )
    const quota = limiterAt(undefined, 'jobs', 3, true)
    const db = laid.at()
    const work = async () =>
      db.transaction(async (tx) => {
        await tx.execute(`insert into ${name}.jobs (org) values ('acme')`)
        const { success } = await quota.limit('acme', { tx })
        if (!success) throw new Error('over')
      })
    const done = await Promise.allSettled(Array.from({ length: 8 }, work))
    expect(done.filter(({ status }) => status === 'fulfilled')).toHaveLength(3)
    expect(await rows(`select count(*)::int as jobs from ${name}.jobs`)).toEqual([{ jobs: 3 }])
  })
})
