import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../src/index.ts'
import { Cluster } from '../support/cluster.ts'
import { tell } from '../support/happened.ts'
import {
  count,
  endPools,
  errorOf,
  expectExact,
  expectQuiet,
  limiter,
  limiterOn,
  newPrefix,
  type Outcome,
  openPool,
  outcomeOf,
  recovers,
  SECRET,
  uncaughtBy,
} from './kit.ts'

let cluster: Cluster
beforeAll(async () => {
  cluster = await Cluster.create()
  for (const file of ['0000_rate_limit', '0001_storage']) {
    await run(cluster.url, await readFile(`drizzle/${file}.sql`, 'utf8'))
  }
})
afterEach(endPools)
afterAll(() => cluster.remove())

async function run(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url })
  // The server may be killed in between.
  client.on('error', () => {})
  await client.connect()
  return client.query(sql).then(
    ({ rows }) => client.end().then(() => rows),
    (error) => client.end().then(() => Promise.reject(error)),
  )
}

const TABLES = { durable: 'rate_limit_durable', ephemeral: 'rate_limit_ephemeral' } as const

async function usedOf(url: string, table: keyof typeof TABLES, prefix: string): Promise<number> {
  const [row] = await run(
    url,
    `select count::int from ${TABLES[table]} where prefix = '${prefix}' and key = '${SECRET}'`,
  )
  return Number(row?.['count'] ?? 0)
}

/** Calls one after the other by some callers, until `happen` has happened and they are served again. */
async function callWhile(ratelimit: Ratelimit, happen: () => Promise<unknown>): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  let over = false
  const callers = Array.from({ length: 8 }, async () => {
    while (!over) {
      const outcome = await outcomeOf(ratelimit.limit(SECRET))
      outcomes.push(outcome)
      // If all of them tried at once, they would take the processor from the server that starts.
      if (outcome !== 'granted') await sleep(10)
    }
  })
  try {
    await expect.poll(() => count(outcomes, 'granted')).toBeGreaterThan(50)
    await happen()
    await recovers(() => ratelimit.limit('another key'))
  } finally {
    over = true
    await Promise.all(callers)
  }
  return outcomes
}

/** The ways of a server to go away, and to come back. */
const events: Record<string, () => Promise<unknown>> = {
  'kill -9 of the server': async () => {
    await cluster.kill()
    await cluster.start()
  },
  'a crash of one of its processes, after which it restarts by itself': async () => {
    const client = new pg.Client({ connectionString: cluster.url })
    client.on('error', () => {})
    await client.connect()
    const ended = new Promise((resolve) => client.once('end', resolve))
    const { rows } = await client.query(
      `select pid from pg_stat_activity where backend_type = 'checkpointer'`,
    )
    process.kill(rows[0].pid, 'SIGKILL')
    tell('servers', 'with one process killed')
    await ended
  },
  'an immediate shutdown': async () => {
    await cluster.stop('immediate')
    await cluster.start()
  },
}

describe.each(Object.entries(events))('%s', (name, happen) => {
  test('with durable and synchronousCommit no granted call is lost', async () => {
    const opened = openPool(cluster.url)
    const prefix = newPrefix(name)
    const ratelimit = new Ratelimit({
      ...{ db: opened.db, limiter: Ratelimit.fixedWindow(1_000_000, '1h'), prefix },
      ...{ durable: true, synchronousCommit: true, cleanupProbability: 0 },
    })
    let outcomes: Outcome[] = []
    const uncaught = await uncaughtBy(async () => {
      outcomes = await callWhile(ratelimit, happen)
    })
    expect(uncaught).toEqual([])
    expectExact(outcomes, await usedOf(cluster.url, 'durable', prefix), 1_000_000)
    const told = ['granted', 'OUTCOME_UNKNOWN', 'UNREACHABLE', 'TIMEOUT']
    expect(told).toEqual(expect.arrayContaining([...new Set(outcomes)]))
    await expectQuiet(opened)
  })

  test('a durable limit may lose the last moments only, and an ephemeral limit is whole again', async () => {
    const opened = openPool(cluster.url)
    const durable = limiterOn(opened, newPrefix(`lazy ${name}`), true)
    const ephemeral = limiterOn(opened, newPrefix(`unlogged ${name}`))
    for (const each of [durable, ephemeral]) await each.limit(SECRET, { rate: 60 })
    // What was committed before a flush of the WAL is safe.
    await run(cluster.url, 'checkpoint')
    await happen()
    await recovers(() => durable.limit(SECRET, { rate: 0 }))
    expect(await durable.getRemaining(SECRET)).toMatchObject({ used: 60 })
    expect(await ephemeral.limit(SECRET)).toMatchObject({ success: true, remaining: 99 })
    await expectQuiet(opened)
  })
})

test('after a restart in a burst each answer is true, and the next calls succeed', async () => {
  const opened = openPool(cluster.url)
  const prefix = newPrefix('restart')
  const ratelimit = new Ratelimit({
    ...{ db: opened.db, limiter: Ratelimit.fixedWindow(1_000_000, '1h'), prefix },
    cleanupProbability: 0.5,
  })
  let outcomes: Outcome[] = []
  const uncaught = await uncaughtBy(async () => {
    outcomes = await callWhile(ratelimit, async () => {
      await cluster.stop()
      await cluster.start()
    })
  })
  expect(uncaught).toEqual([])
  // A clean stop keeps the unlogged table too.
  expectExact(outcomes, await usedOf(cluster.url, 'ephemeral', prefix), 1_000_000)
  await expectQuiet(opened)
})

describe('a standby', () => {
  let standby: Cluster
  beforeAll(async () => {
    const opened = openPool(cluster.url)
    for (const durable of [true, false])
      await limiterOn(opened, 'standby', durable).limit(SECRET, { rate: 60 })
    await endPools()
    standby = await cluster.standby()
  })
  afterAll(() => standby.stop())

  test('refuses checks, charges nothing, and answers looks at the durable table', async () => {
    const opened = openPool(standby.url)
    const durable = limiterOn(opened, 'standby', true)
    const refused = { code: 'DATABASE', sqlState: '25006' }
    expect(await errorOf(durable.limit(SECRET))).toMatchObject(refused)
    expect(await errorOf(limitAll([{ ratelimit: durable, key: SECRET }]))).toMatchObject(refused)
    expect(await errorOf(durable.resetUsedTokens(SECRET))).toMatchObject(refused)
    expect(await errorOf(durable.cleanup())).toMatchObject(refused)
    expect(await durable.getRemaining(SECRET)).toMatchObject({ used: 60 })
    // Postgres keeps nothing of an unlogged table on a standby.
    const ephemeral = limiterOn(opened, 'standby')
    expect(await errorOf(ephemeral.limit(SECRET))).toMatchObject(refused)
    const patient = new Ratelimit({ db: opened.db, limiter, prefix: 'standby', onError: 'allow' })
    expect(await patient.limit(SECRET)).toMatchObject({ success: true, degraded: true })
    await expectQuiet(opened)
  })

  test('is promoted: checks go on, with the durable counts and whole ephemeral limits', async () => {
    const opened = openPool(standby.url)
    const durable = limiterOn(opened, 'standby', true)
    const ephemeral = limiterOn(opened, 'standby')
    await errorOf(durable.limit(SECRET))
    await limiterOn(openPool(cluster.url), 'standby', true).limit(SECRET, { rate: 10 })
    await expect.poll(() => usedOf(standby.url, 'durable', 'standby')).toBe(70)
    await cluster.stop()
    try {
      await standby.promote()
      expect(await durable.limit(SECRET)).toMatchObject({ success: true, remaining: 29 })
      expect(await ephemeral.limit(SECRET)).toMatchObject({ success: true, remaining: 99 })
      await expectQuiet(opened)
    } finally {
      await cluster.start()
    }
  })
})

test('a durable limit holds over a crash, whatever calls had an unknown outcome', async () => {
  const opened = openPool(cluster.url)
  const ratelimit = new Ratelimit({
    ...{ db: opened.db, limiter, prefix: newPrefix('held'), durable: true, synchronousCommit: true },
    cleanupProbability: 0,
  })
  const outcomes: Outcome[] = []
  for (let i = 0; i < 40; i++) outcomes.push(await outcomeOf(ratelimit.limit(SECRET)))
  await cluster.kill()
  await cluster.start()
  for (let i = 0; i < 100; i++) outcomes.push(await outcomeOf(ratelimit.limit(SECRET)))
  expect(count(outcomes, 'granted')).toBeLessThanOrEqual(100)
  expect(count(outcomes, 'denied')).toBeGreaterThan(0)
})
