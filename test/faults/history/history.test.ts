import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { type Fault, FaultyProxy } from '../../support/proxy.ts'
import { randomFrom } from '../../support/random.ts'
import { anySeed } from '../../support/runs.ts'
import { urlOf } from '../kit.ts'
import { Checker } from './check.ts'
import type { Done, Message } from './child.ts'
import { problemsOf } from './events.ts'
import type { Job } from './kit.ts'
import { limitsFrom } from './limits.ts'
import { recordedIn } from './record.ts'
import type { Handed } from './reservations.ts'

const CALLS = Number(process.env['HISTORY_CALLS'] ?? 300_000)
const SEED = Number(process.env['HISTORY_SEED'] ?? anySeed())
const PROCESSES = 4
const CONNECTIONS = 32
const LOADERS = ['tsx', ...(process.env['DRIZZLE'] === '1.0' ? ['./test/support/drizzle-1.0.mjs'] : [])]
const random = randomFrom(SEED)
let lost: number | undefined
const did = { faults: {} as Record<string, number>, kills: 0, cuts: 0 }

/** About one request of 300 meets a fault, and one of a hundred is late. */
function faultOf(): Fault {
  const chance = random()
  const breaks = ['cut before', 'cut after', 'stall before', 'stall after'] as const
  const fault = chance < 0.003 ? (breaks[Math.floor((chance / 0.003) * 4)] as Fault) : 'pass'
  const chosen = chance > 0.99 ? Math.ceil(random() * 40) : fault
  const name = typeof chosen === 'number' ? 'late' : chosen
  did.faults[name] = (did.faults[name] ?? 0) + 1
  return chosen
}

async function disturb(database: TestDatabase, proxy: FaultyProxy, signal: AbortSignal): Promise<void> {
  const victim = `select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'history' and datname = current_database() order by random() limit 1`
  while (!signal.aborted) {
    await sleep(200)
    did.kills += (await database.rows(victim)).length
    if (random() > 0.05) continue
    did.cuts++
    const kind = random()
    if (kind < 0.4) proxy.cutAll()
    else if (kind < 0.6) proxy.halfOpenAll()
    else {
      await proxy.welcome(kind < 0.8 ? 'refuse' : 'reset')
      await sleep(50)
      await proxy.welcome('accept')
    }
  }
}

/** Resolves when no statement of a process is under way on the server any more: abandoned ones run on. */
async function quiet(database: TestDatabase): Promise<void> {
  const others = `select 1 from pg_stat_activity where application_name = 'history' and datname = current_database()`
  while ((await database.rows(others)).length > 0) await sleep(50)
}

function start(job: Job): ChildProcess {
  const path = fileURLToPath(new URL('child.ts', import.meta.url))
  return fork(path, [JSON.stringify(job)], { execArgv: LOADERS.flatMap((loader) => ['--import', loader]) })
}

/** What a process tells when it is done. Those that die before tell nothing. */
async function doneBy(child: ChildProcess, _: number, children: readonly ChildProcess[]): Promise<Done> {
  let done: Done | undefined
  child.on('message', (message: Message) => {
    if ('done' in message) done = message.done
    else handOver(message.handed, children)
  })
  await once(child, 'exit')
  if (!done) throw new Error('A process ended before its work was done.')
  return done
}

/** Gives a reservation to any process. One that has ended leaves it unsettled. */
function handOver(reservation: Handed, children: readonly ChildProcess[]): void {
  const receiver = children[Math.floor(random() * children.length)]
  if (receiver?.connected) receiver.send(reservation, () => {})
}

test(`${CALLS} calls of ${PROCESSES} processes, ${CONNECTIONS} connections, seed ${SEED}`, async () => {
  const started = Date.now()
  const database = await emptyDatabase()
  await migrate(database)
  const url = await urlOf(database)
  const proxy = await FaultyProxy.start(url)
  proxy.fault = faultOf
  const folder = await mkdtemp(join(tmpdir(), 'history-'))
  const jobs = Array.from(
    { length: PROCESSES },
    (_, process): Job => ({
      ...{
        url: proxy.through(url),
        file: join(folder, `${process}`),
        seed: SEED + process,
        started,
        process,
      },
      ...{ calls: CALLS / PROCESSES, connections: CONNECTIONS / PROCESSES, processes: PROCESSES },
    }),
  )
  const ended = new AbortController()
  const disturbing = disturb(database, proxy, ended.signal)
  const children = jobs.map(start)
  const done = await Promise.all(children.map(doneBy)).finally(() => {
    ended.abort()
    for (const child of children) child.kill()
  })
  await disturbing
  await proxy.close()
  await quiet(database)

  const limits = limitsFrom(started)
  const checker = new Checker(limits)
  for (const { file } of jobs) for await (const recorded of recordedIn(file)) checker.add(recorded)
  const elapsedMs = Date.now() - started
  for (const [limit, { prefix, used = '0', credited = '0', options }] of limits.entries()) {
    const table = options?.durable ? 'rate_limit_durable' : 'rate_limit_ephemeral'
    const rows = await database.rows(
      `select key, (${used})::float8 as used, (${credited})::float8 as credited from ${table} where prefix = $1`,
      [prefix],
    )
    const byKey = rows.map(
      ({ key, used, credited }) => [String(key), { used: Number(used), credited: Number(credited) }] as const,
    )
    checker.check(limit, new Map(byKey), elapsedMs)
  }
  const sum = (of: (each: Done) => number) => done.reduce((total, each) => total + of(each), 0)
  const { windows, unknown, unknownTaken, problems } = checker
  const told = done.map((each) => each.told)
  const [charged, repeated] = [told.flatMap((each) => each.charged), told.flatMap((each) => each.repeated)]
  const errors = added(done.map((each) => each.errors))
  console.log(
    [
      `seed ${SEED}: ${sum(({ calls }) => calls)} calls in ${Math.round(elapsedMs / 1000)} s`,
      `actions: ${JSON.stringify(added(done.map(({ actions }) => actions)))}`,
      `answers: ${JSON.stringify(added(done.map(({ counts }) => counts)))}`,
      `errors: ${JSON.stringify(errors)}`,
      `requests through the proxy: ${JSON.stringify(did.faults)}`,
      `backends killed: ${did.kills}; all connections cut: ${did.cuts}`,
      `resets: ${sum(({ resets }) => resets)}; rows cleaned up: ${sum(({ deleted }) => deleted)}, besides sweeps`,
      `windows checked: ${windows}; units unknown: ${unknown}, of them taken: ${unknownTaken}`,
      `events charged: ${charged.length}, found charged: ${repeated.length}`,
      `connections lost by pools: ${sum(({ leaked }) => leaked)} of ${CONNECTIONS}`,
    ].join('\n'),
  )
  lost = sum(({ leaked }) => leaked)
  expect(problems).toEqual([])
  expect(await problemsOf(database, told)).toEqual([])
  for (const events of [charged, repeated]) expect(events.length).toBeGreaterThan(0)
  for (const name of Object.keys(errors)) expect(name).toMatch(/^[A-Z_]+$/)
  expect(did.kills).toBeGreaterThan(0)
  expect(unknown).toBeGreaterThan(0)
  await rm(folder, { recursive: true })
  await database.close()
}, 3_600_000)

test('no pool has lost a connection', () => {
  expect(lost).toBe(0)
})

function added(all: readonly Record<string, number>[]): Record<string, number> {
  const sums: Record<string, number> = {}
  for (const [name, count] of all.flatMap((each) => Object.entries(each)))
    sums[name] = (sums[name] ?? 0) + count
  return sums
}
