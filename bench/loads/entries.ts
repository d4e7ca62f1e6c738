import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit } from '../../src/index.ts'
import { type Entry, ledger } from '../../src/ledger/index.ts'
import { type Contender, makeKeys, PLENTY } from '../contenders/contender.ts'
import { onNodePostgres, openedBy } from '../contenders/this-package.ts'
import { anyOf, keyNumbers } from '../measure.ts'
import { admitted, interleave } from '../rounds.ts'
import { type Bench, type Load, type Outcome, withDatabase } from './load.ts'

// What a row of the application's own for each charge costs, and what it costs by a transaction for each call.

const KEYS = 1_000
const LIMITER = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
const RECORDING = 'drizzle-ratelimit, ledger'

function insertOf(entries: Pick<Entry, 'key' | 'units'>[]) {
  const rows = entries.map(({ key, units }) => sql`(${key}, ${units})`)
  return sql`insert into bench_ledger (key, units) values ${sql.join(rows, sql`, `)}`
}

const recording: Contender = {
  name: RECORDING,
  open: async ({ pool }) =>
    openedBy(
      new Ratelimit({
        db: drizzle({ client: pool }),
        limiter: LIMITER,
        prefix: 'recording',
        use: [ledger((tx, entries) => tx.execute(insertOf([...entries])))],
      }),
    ),
}

const ownTransactions: Contender = {
  name: 'limit and insert in a transaction',
  async open({ pool }) {
    const db = drizzle({ client: pool })
    const ratelimit = new Ratelimit({ db, limiter: LIMITER, prefix: 'own' })
    return {
      ...openedBy(ratelimit),
      check: (key) =>
        db.transaction(async (tx) => {
          const { success } = await ratelimit.limit(key, { tx })
          if (success) await tx.execute(insertOf([{ key, units: 1 }]))
          return success
        }),
    }
  },
}

export const ENTRIES: readonly Load[] = [1, 64].map((callers) => ({
  name: `entries-${callers}-${callers === 1 ? 'caller' : 'callers'}`,
  title: `a row for each charge, ${callers} ${callers === 1 ? 'caller' : 'callers'}, 1,000 keys`,
  run: (bench) => measure(bench, callers),
}))

function measure(bench: Bench, callers: number): Promise<Outcome> {
  const who = [recording, ownTransactions, onNodePostgres]
  const { rounds } = bench.settings
  bench.progress.expect(rounds * who.length)
  return withDatabase(bench, async (connections) => {
    await connections.pool.query('create table bench_ledger (key text not null, units float8 not null)')
    const opened = await Promise.all(
      who.map(async (contender) => ({ ...contender, limiter: await contender.open(connections) })),
    )
    for (const { name, limiter } of opened) {
      bench.progress.prepare(name)
      await makeKeys(limiter, keyNumbers(KEYS))
    }
    const entries = opened.map(({ name, limiter: { check } }) =>
      admitted(name, { check, key: anyOf(KEYS), callers, serverCpu: bench.serverCpu }, bench.settings),
    )
    const measured = await interleave(entries, rounds, bench.progress)
    return { measured, baseline: RECORDING, comparedBy: callers === 1 ? 'p50Ms' : 'perSecond' }
  })
}
