import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { limitAll, Ratelimit, RatelimitError } from '../../src/index.ts'
import { FaultyProxy } from '../support/proxy.ts'
import { CITUS_URL, CITUS_WORKERS, useLayout } from './layout.ts'

// A proxy stands between the coordinator and the first worker, and breaks what they say at one moment.

const [first] = CITUS_WORKERS

describe.skipIf(!CITUS_URL || !first)('needs CITUS_URL and CITUS_WORKERS: a worker that fails', () => {
  const laid = useLayout(8)
  const { tables, use } = laid
  const own = new URL(String(first ?? CITUS_URL ?? 'postgres://none'))
  let proxy: FaultyProxy
  let node = 0

  /** Until the workers know of it, Citus refuses to change tables. */
  const moveTo = async (port: string) => {
    await laid.rows(`select citus_update_node(${node}, '127.0.0.1', ${port})`)
    const isSynced = async () => {
      const waiting = await laid.rows('select nodeid from pg_dist_node where not metadatasynced')
      if (waiting.length > 0) throw new Error('A worker has not read where the other one is.')
    }
    await vi.waitFor(isSynced, { timeout: 60_000, interval: 100 })
  }

  beforeAll(async () => {
    proxy = await FaultyProxy.start(own.href)
    const found = await laid.rows(`select nodeid from pg_dist_node where nodeport = ${own.port}`)
    node = Number(found[0]?.['nodeid'])
    await moveTo(new URL(proxy.through(own.href)).port)
  })
  afterAll(async () => {
    proxy.fault = () => 'pass'
    await proxy.welcome('accept')
    await moveTo(own.port)
    await proxy.close()
  })

  const limiterOf = (prefix: string) =>
    new Ratelimit({
      ...{ db: laid.at(), tables, use, prefix, durable: true },
      limiter: Ratelimit.fixedWindow(10, '1h'),
    })

  /** Keys on the first worker and on the second. */
  async function keysOf(): Promise<{ readonly there: string[]; readonly elsewhere: string[] }> {
    const keys = Array.from({ length: 32 }, (_, i) => `key ${i}`)
    const placed = await laid.rows(
      `select key, (select nodeid from pg_dist_placement join pg_dist_node using (groupid)
          where shardid = get_shard_id_for_distribution_column('${laid.name}.rate_limit_durable', key)) as node
        from unnest(array[${keys.map((key) => `'${key}'`).join()}]) as key`,
    )
    const on = (is: boolean) =>
      placed.filter((each) => (each['node'] === node) === is).map(({ key }) => String(key))
    return { there: on(true), elsewhere: on(false) }
  }

  test.each([
    ['PREPARE TRANSACTION', 'cut before'],
    ['PREPARE TRANSACTION', 'cut after'],
    ['COMMIT PREPARED', 'cut before'],
    ['COMMIT PREPARED', 'cut after'],
  ] as const)('a list over two workers is charged whole or not at all: %s, %s', async (said, fault) => {
    const { there, elsewhere } = await keysOf()
    const [one, other] = [there[0] as string, elsewhere[0] as string]
    const limiter = limiterOf(`${said} ${fault}`)
    const charge = () =>
      limitAll([
        { ratelimit: limiter, key: one },
        { ratelimit: limiter, key: other },
      ])
    await charge()
    let faults = 0
    proxy.fault = (request) => {
      if (faults > 0 || !request.includes(said)) return 'pass'
      faults++
      return fault
    }
    const outcome = await charge().then(
      ({ success }) => (success ? 'charged' : 'denied'),
      (error: RatelimitError) => error.code,
    )
    proxy.fault = () => 'pass'
    expect(faults).toBe(1)
    // Citus finishes or undoes what was prepared.
    await expect.poll(() => prepared(), { timeout: 20_000 }).toBe(0)
    const used = (await limiter.getRemainingAll([one, other])).map((each) => each.used)
    expect(used[0]).toBe(used[1])
    if (outcome === 'charged') expect(used[0]).toBe(2)
    else if (outcome === 'OUTCOME_UNKNOWN') expect([1, 2]).toContain(used[0])
    else expect([outcome, used[0]]).toEqual([outcome, 1])
  })

  test('a stopped worker fails its own keys only', async () => {
    const { there, elsewhere } = await keysOf()
    const limiter = limiterOf('stopped')
    await Promise.all([...there, ...elsewhere].map((key) => limiter.limit(key)))
    await proxy.welcome('refuse')
    const outcomes = (keys: readonly string[]) =>
      Promise.all(keys.map((key) => limiter.limit(key).then(({ success }) => success, codeOf)))
    const both = await Promise.all([outcomes(there), outcomes(elsewhere)])
    await proxy.welcome('accept')
    expect(both[1]).toEqual(elsewhere.map(() => true))
    expect(both[0].every((each) => each === 'OUTCOME_UNKNOWN' || each === 'UNREACHABLE')).toBe(true)
    await expect.poll(() => outcomes(there.slice(0, 1)), { timeout: 20_000 }).toEqual([true])
  })

  /** How many transactions wait on the workers to be committed or rolled back. */
  async function prepared(): Promise<number> {
    let waiting = 0
    for (const url of CITUS_WORKERS) {
      const [row] = await laid.rows('select count(*)::int as waiting from pg_prepared_xacts', url)
      waiting += Number(row?.['waiting'])
    }
    return waiting
  }
})

function codeOf(error: unknown): unknown {
  return error instanceof RatelimitError ? error.code : error
}
