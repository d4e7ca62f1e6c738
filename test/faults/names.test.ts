import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { Credits } from '../../src/credits/index.ts'
import { openReservations } from '../../src/quota/index.ts'
import { useDatabase } from '../support/databases.ts'
import { newPrefix, urlOf } from './kit.ts'
import type { Job } from './names-worker.ts'

// A process dies between a reservation with a name and its settlement, or while it settles. Another process
// settles it: the estimate is never lost, and never given back twice.

const database = useDatabase()
const WORKER = fileURLToPath(new URL('names-worker.ts', import.meta.url))
const AFTER_ITS_END_MS = 11 * 60_000

interface Worker {
  readonly child: ChildProcess
  /** What it tells first. */
  readonly told: unknown
}

async function start(job: Job): Promise<Worker> {
  const child = spawn(process.execPath, ['--import', 'tsx', WORKER, JSON.stringify(job)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const lines = createInterface({ input: child.stdout })
  const [line] = await Promise.race([
    once(lines, 'line'),
    once(child, 'exit').then(() => Promise.reject(new Error('It told nothing.'))),
  ])
  return { child, told: JSON.parse(String(line)) }
}

async function kill({ child }: Worker): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  expect(await exited).toEqual([null, 'SIGKILL'])
}

async function ended({ child, told }: Worker): Promise<unknown> {
  if (child.exitCode === null) await once(child, 'exit')
  expect(child.exitCode).toBe(0)
  return told
}

test.each([
  { what: 'settle', aheadMs: 0, left: 70, again: { repeated: true } },
  { what: 'settle expired', aheadMs: AFTER_ITS_END_MS, left: 100, again: [] },
] as const)('after a kill another process does it: $what', async ({ what, aheadMs, left, again }) => {
  const url = await urlOf(database)
  const prefix = newPrefix(`killed, ${what}`)
  const pool = new pg.Pool({ connectionString: url })
  const db = drizzle({ client: pool })
  const ratelimit = new Credits({ db, prefix })
  await ratelimit.grant('org', 100)
  const work = { url, prefix, aheadMs }
  try {
    await kill(await start({ ...work, what: 'reserve', aheadMs: 0 }))
    expect(await ratelimit.getRemaining('org')).toMatchObject({ remaining: 60 })
    expect(await openReservations(ratelimit)).toMatchObject([{ key: 'org', id: 'job', rate: 40 }])
    // The one that settles is killed before it commits: nothing is given back, and it is open again.
    await kill(await start({ ...work, what: `${what} and hold` }))
    expect(await ratelimit.getRemaining('org')).toMatchObject({ remaining: 60 })
    expect(await openReservations(ratelimit)).toHaveLength(1)
    // Its backend may hold the rows for a moment: settleExpired skips those, so wait for it to be gone.
    const held = `select 1 from pg_stat_activity where state = 'idle in transaction' and datname = current_database()`
    await expect.poll(async () => (await database.rows(held)).length).toBe(0)
    await ended(await start({ ...work, what }))
    expect(await ratelimit.getRemaining('org')).toMatchObject({ remaining: left })
    expect(await openReservations(ratelimit)).toEqual([])
    const repeated = await ended(await start({ ...work, what }))
    if (what === 'settle') expect(repeated).toMatchObject(again)
    else expect(repeated).toEqual(again)
    expect(await ratelimit.getRemaining('org')).toMatchObject({ remaining: left })
  } finally {
    await pool.end()
  }
})
