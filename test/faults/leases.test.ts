import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { useDatabase } from '../support/databases.ts'
import { tell } from '../support/happened.ts'
import { FaultyProxy } from '../support/proxy.ts'
import { type Interval, mostAtOnce } from '../support/sweep-line.ts'
import { urlOf } from './kit.ts'
import type { Job, Told } from './lease-worker.ts'

const LIMIT = 5
const LEASE_MS = 600
const PROCESSES = 8
const TIME_MS = 15_000
const ENOUGH = 200

const database = useDatabase()
const WORKER = fileURLToPath(new URL('lease-worker.ts', import.meta.url))

interface Worker {
  readonly child: ChildProcess
  readonly told: Told[]
  /** When it was gone, if it is. */
  goneAt: number | undefined
}

function start(url: string): Worker {
  const job: Job = { url, prefix: 'faults', limit: LIMIT, leaseMs: LEASE_MS, workers: 3 }
  const child = spawn(process.execPath, ['--import', 'tsx', WORKER, JSON.stringify(job)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const worker: Worker = { child, told: [], goneAt: undefined }
  createInterface(child.stdout as NodeJS.ReadableStream).on('line', (line) =>
    worker.told.push(JSON.parse(line)),
  )
  child.once('exit', () => {
    worker.goneAt = Number(process.hrtime.bigint())
  })
  return worker
}

async function kill(worker: Worker): Promise<void> {
  const gone = once(worker.child, 'exit')
  worker.child.kill('SIGKILL')
  await gone
  tell('processes', 'killed')
}

/**
 * When the work under each lease ran: until it was over, was told to stop, or was killed. It was told when that
 * was due, at the latest: a process that the machine has stopped learns it late.
 */
function intervalsOf({ told, goneAt = Number.POSITIVE_INFINITY }: Worker): Interval[] {
  const isEnd = ({ what }: Told) => what === 'ends' || what === 'is told to stop'
  const ends = new Map(told.filter(isEnd).map((each) => [each.lease, Number(each.at)]))
  const lasts = new Map(told.filter((each) => !isEnd(each)).map((each) => [each.lease, Number(each.at)]))
  return told
    .filter(({ what }) => what === 'begins')
    .map(({ lease, at }) => {
      const dueAt = (lasts.get(lease) ?? expect.fail()) + 0.9 * LEASE_MS * 1e6
      return { from: Number(at), to: Math.min(ends.get(lease) ?? goneAt, dueAt) }
    })
}

test('never more than 5 leases at once, with killed processes and cut networks', async ({
  signal,
  onTestFinished,
}) => {
  const proxy = await FaultyProxy.start(await urlOf(database))
  const url = proxy.through(await urlOf(database))
  const faults = ['cut before', 'cut after', 'stall before', 'stall after', 40] as const
  let isFaulty = false
  proxy.fault = () => {
    const fault = faults[Math.floor(Math.random() * faults.length)]
    return isFaulty && fault !== undefined && Math.random() < 0.02 ? fault : 'pass'
  }
  const running = Array.from({ length: PROCESSES }, () => start(url))
  const all = [...running]
  // Processes that went on after a test that has failed would take the time of all others.
  onTestFinished(() => {
    for (const { child } of all) child.kill('SIGKILL')
  })
  await expect.poll(() => all.every(({ told }) => told.length > 0), { timeout: 60_000 }).toBe(true)
  isFaulty = true
  const endsAt = performance.now() + TIME_MS
  const toldOf = (event: Told['what']) =>
    all.flatMap(({ told }) => told).filter(({ what }) => what === event).length
  const hasEnough = () => toldOf('begins') >= ENOUGH && toldOf('is told to stop') > 0
  // On a busy machine it takes longer until there are enough.
  while (!signal.aborted && (performance.now() < endsAt || !hasEnough())) {
    await sleep(Math.random() * 700)
    const at = Math.floor(Math.random() * PROCESSES)
    const chance = Math.random()
    if (chance < 0.3) {
      // On a slow machine, starting processes would otherwise take all of its time.
      if (running.some(({ told }) => told.length === 0)) continue
      await kill(running[at] as Worker)
      running[at] = start(url)
      all.push(running[at])
    } else if (chance < 0.65) proxy.cutAll()
    else proxy.halfOpenAll()
  }
  await Promise.all(running.map(kill))
  await proxy.close()
  const intervals = all.flatMap(intervalsOf)
  tell('leases', 'with at most 5 at once', intervals.length)
  tell('leases', 'told to stop before their end', toldOf('is told to stop'))
  expect(hasEnough()).toBe(true)
  expect(mostAtOnce(intervals)).toBe(LIMIT)
})
