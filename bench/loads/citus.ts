import { randomUUID } from 'node:crypto'
import { drizzle } from 'drizzle-orm/node-postgres'
import { pgSchema } from 'drizzle-orm/pg-core'
import pg from 'pg'
import { rateLimitTables } from '../../schema/index.ts'
import { citus } from '../../src/citus/index.ts'
import { Ratelimit, storageSql, tableSql } from '../../src/index.ts'
import { PLENTY } from '../contenders/contender.ts'
import { anyOf, keyNumber } from '../measure.ts'
import { admitted, type Entry, interleave } from '../rounds.ts'
import { type ServerCpu, serverCpuOf } from '../server/server-cpu.ts'
import { callersOf } from './calls.ts'
import type { Load } from './load.ts'

const COORDINATOR = process.env['CITUS_URL']
const WORKERS = process.env['CITUS_WORKERS']?.split(',') ?? []
const PLAIN = process.env['CITUS_PLAIN']

const KEYS = 100_000
const SHARDS = [2, 8, 32]
const ONE_SERVER = 'one plain server'

/** Known keys over the shards of a Citus, if one is named. On one machine this shows costs, not scale. */
export const CITUS: readonly Load[] =
  COORDINATOR && PLAIN && WORKERS.length > 0
    ? [64, 256, 1024].map((callers) => loadOf(callers, COORDINATOR, PLAIN))
    : []

function loadOf(callers: number, coordinator: string, plain: string): Load {
  return {
    name: `citus-${callers}`,
    title: `${KEYS.toLocaleString('en')} keys on Citus, ${callersOf(callers)}`,
    async run({ settings, progress }) {
      const servers = { coordinator: [coordinator], workers: WORKERS }
      const laid = [await lay(plain, undefined)]
      const facts: Record<string, number> = {}
      const entries = [await entryOf(ONE_SERVER, laid[0] as Laid, [plain], { 'the server': [plain] })]
      for (const shards of SHARDS) {
        const own = await lay(coordinator, shards)
        laid.push(own)
        entries.push(await entryOf(`${shards} shards, by the coordinator`, own, [coordinator], servers))
        entries.push(await entryOf(`${shards} shards, by the workers`, own, WORKERS, servers))
      }
      progress.expect(settings.rounds * entries.length)
      const measured = await interleave(entries, settings.rounds, progress)
      for (const { drop } of laid) await drop()
      return { measured, baseline: ONE_SERVER, comparedBy: 'perSecond', facts }

      /** A participant that checks by these entry nodes in turn. */
      async function entryOf(
        name: string,
        { limiterAt }: Laid,
        urls: readonly string[],
        parts: Record<string, readonly string[]>,
      ): Promise<Entry> {
        const limiters = urls.map(limiterAt)
        let turn = 0
        const check = async (key: string) =>
          (await (limiters[turn++ % limiters.length] as Ratelimit).limit(key)).success
        const cpu = await cpuOf(parts)
        const { turn: run } = admitted(
          name,
          { check, key: anyOf(KEYS), callers, serverCpu: cpu?.all },
          settings,
        )
        const sums = new Map<string, number>()
        let checks = 0
        const counted = async () => {
          const round = await run()
          checks += round.checks
          for (const [part, us] of cpu?.taken() ?? []) {
            const sum = (sums.get(part) ?? 0) + us
            sums.set(part, sum)
            facts[`${name}: CPU µs of ${part}`] = sum / checks
          }
          return round
        }
        return { name, turn: counted }
      }
    },
  }
}

interface Laid {
  limiterAt(url: string): Ratelimit
  drop(): Promise<void>
}

/** Tables in a schema of their own, with the rows of all keys. */
async function lay(url: string, shards: number | undefined): Promise<Laid> {
  const schema = `bench_${randomUUID().replaceAll('-', '')}`
  const tables = rateLimitTables({ schema: pgSchema(schema) })
  const pools: pg.Pool[] = []
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const table = `${schema}.rate_limit_ephemeral`
  for (const statement of [...tableSql(tables), ...storageSql(tables)]) await client.query(statement)
  if (shards !== undefined) {
    const options = `shard_count => ${shards}, colocate_with => 'none'`
    await client.query(`select create_distributed_table('${table}', 'key', ${options})`)
  }
  await client.query(
    `insert into ${table} (prefix, key, tokens, last_refill, expires_at)
      select 'citus', '${keyNumber(0).slice(0, -1)}' || n, ${PLENTY}, now(), now() + interval '1 day'
      from generate_series(0, ${KEYS - 1}) as n`,
  )
  await client.query(`vacuum analyze ${table}`)
  return {
    limiterAt(at) {
      const pool = new pg.Pool({ connectionString: at, max: 16, idleTimeoutMillis: 0 })
      pools.push(pool)
      return new Ratelimit({
        ...{
          db: drizzle({ client: pool }),
          tables,
          prefix: 'citus',
          use: shards === undefined ? [] : [citus()],
        },
        limiter: Ratelimit.tokenBucket(PLENTY, '1h', PLENTY),
        cleanupProbability: 0,
      })
    },
    async drop() {
      await Promise.all(pools.map((pool) => pool.end()))
      await client.query(`drop schema ${schema} cascade`)
      await client.end()
    },
  }
}

/** The CPU of servers together, and what each part has taken between the last two readings. */
async function cpuOf(
  parts: Record<string, readonly string[]>,
): Promise<{ all: ServerCpu; taken(): ReadonlyMap<string, number> } | undefined> {
  const read: [string, ServerCpu][] = []
  for (const [part, urls] of Object.entries(parts)) {
    for (const url of urls) {
      const cpu = await serverCpuOf(url)
      if (!cpu) return undefined
      read.push([part, cpu])
    }
  }
  const taken = new Map<string, number>()
  let before: readonly number[] = []
  const all = () => {
    const now = read.map(([, cpu]) => cpu())
    taken.clear()
    for (const [place, [part]] of read.entries()) {
      const us = (now[place] as number) - (before[place] ?? Number.NaN)
      taken.set(part, (taken.get(part) ?? 0) + us)
    }
    before = now
    return now.reduce((sum, us) => sum + us, 0)
  }
  return { all, taken: () => taken }
}
