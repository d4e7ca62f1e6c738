// `npx tsx bench/profile.ts` shows where the server's time goes in a check. It starts a server, or uses the one
// that `DATABASE_URL` names. Each figure is the median of many executions, measured by EXPLAIN (ANALYZE). An
// argument is the number of rows in the table, of which random ones are charged. Default: 1,000.
import Table from 'cli-table3'
import pg from 'pg'
import { Ratelimit, rateLimitEphemeral } from '../src/index.ts'
import { valuesInOrder } from '../src/kernel/database/run.ts'
import type { Statement } from '../src/kernel/database/statement.ts'
import { numberArray, textArray } from '../src/kernel/sql/calls.ts'
import { takeManyStatement, takeOneStatement } from '../src/kernel/sql/take.ts'
import { startServer } from '../test/support/server.ts'
import { stored } from '../test/support/stored.ts'
import { anyOf } from './measure.ts'
import { median } from './rounds.ts'
import { createDatabase } from './server/database.ts'

const ROWS = Number(process.argv[2] ?? 1_000)
const EXECUTIONS = 300
const PREFIX = 'profile'
const limiter = stored(Ratelimit.tokenBucket(1_000_000, '1h', 1_000_000))
const source: Parameters<typeof takeManyStatement>[0] = {
  table: rateLimitEphemeral,
  rules: limiter,
  injectedClock: false,
  commit: 'as the session',
  guarded: false,
  action: 'take',
  takesLess: false,
}

const key = anyOf(ROWS)

interface Subject {
  readonly text: string
  readonly keys: number
  values(): readonly unknown[]
}

const update = 'update rate_limit_ephemeral set tokens = tokens - 1 where prefix = $1 and key = $2'
const lock = 'select tokens, last_refill from rate_limit_ephemeral where prefix = $1 and key = $2 for update'
const subjects: Record<string, Subject> = {
  'bare UPDATE': { text: update, keys: 1, values: () => [PREFIX, key()] },
  'SELECT ... FOR UPDATE': { text: lock, keys: 1, values: () => [PREFIX, key()] },
  'check of one key': check(takeOneStatement({ ...source, waits: false }), 1),
  'check of 2 keys': check(takeManyStatement(source), 2),
  'check of 32 keys': check(takeManyStatement(source), 32),
}

function check(statement: Statement, keys: number): Subject {
  return {
    text: statement.sql,
    keys,
    values() {
      const chosen = new Set<string>()
      while (chosen.size < keys) chosen.add(key())
      const names = [...chosen].sort()
      const ones = names.map(() => 1)
      const own =
        keys === 1
          ? { key: names[0] ?? '', rate: 1, calls: 1 }
          : { key: textArray(names), rate: numberArray(ones), calls: numberArray(ones) }
      return valuesInOrder(statement, { prefix: PREFIX, ...own }, limiter.params)
    },
  }
}

interface Times {
  readonly planningUs: number
  readonly executionUs: number
  /** Blocks that were not in `shared_buffers`. */
  readonly read: number
}

async function timesOf(client: pg.Client, { text, values }: Subject): Promise<Times> {
  const all: Times[] = []
  for (let i = 0; i < EXECUTIONS; i++) {
    const query = {
      text: `explain (analyze, buffers, timing off, format json) ${text}`,
      values: [...values()],
    }
    const { rows } = await client.query(query)
    const [plan] = rows[0]['QUERY PLAN']
    all.push({
      planningUs: plan['Planning Time'] * 1000,
      executionUs: plan['Execution Time'] * 1000,
      read: plan['Plan']['Shared Read Blocks'],
    })
  }
  return {
    planningUs: median(all.map((each) => each.planningUs)),
    executionUs: median(all.map((each) => each.executionUs)),
    read: median(all.map((each) => each.read)),
  }
}

const server = await startServer()
try {
  const { url, drop } = await createDatabase(server.url)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(
    `insert into rate_limit_ephemeral (prefix, key, tokens, last_refill, expires_at)
       select $1, 'user:' || number, 1000000, now(), now() + interval '1 hour' from generate_series(0, $2::int - 1) as number`,
    [PREFIX, ROWS],
  )
  await client.query('vacuum analyze rate_limit_ephemeral')
  const table = new Table({
    head: ['µs of the server, a key', 'planning, unprepared', 'execution', 'blocks read'],
  })
  for (const [name, subject] of Object.entries(subjects)) {
    const { planningUs, executionUs, read } = await timesOf(client, subject)
    table.push([name, ...[planningUs, executionUs, read].map((each) => (each / subject.keys).toFixed(1))])
  }
  console.log(table.toString())
  await client.end()
  await drop()
} finally {
  await server.stop()
}
