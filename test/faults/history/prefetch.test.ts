import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { emptyDatabase, migrate } from '../../support/databases.ts'
import { FaultyProxy } from '../../support/proxy.ts'
import { randomFrom } from '../../support/random.ts'
import { anySeed } from '../../support/runs.ts'
import { urlOf } from '../kit.ts'
import type { Grant, PrefetchingJob } from './prefetch-child.ts'
import { type PrefetchLimit, prefetchLimits } from './prefetch-limits.ts'

const CALLS = Number(process.env['HISTORY_CALLS'] ?? 300_000) / 5
const SEED = Number(process.env['HISTORY_SEED'] ?? anySeed())
const PROCESSES = 4
const FOR_MS = 300
const TOKENS = 50
const random = randomFrom(SEED)
const LOADERS = ['tsx', ...(process.env['DRIZZLE'] === '1.0' ? ['./test/support/drizzle-1.0.mjs'] : [])]

interface Told {
  readonly fromMemory: number
  readonly errors: Record<string, number>
}

/** Runs one process after the other. Every second one does its calls; others go on until they are killed. */
async function life(job: PrefetchingJob, killed: () => void): Promise<Told[]> {
  const told: Told[] = []
  for (let part = 0; part < PARTS; part++) {
    const path = fileURLToPath(new URL('prefetch-child.ts', import.meta.url))
    const isKilled = part % 2 === 0
    const calls = isKilled ? Number.MAX_SAFE_INTEGER : Math.ceil(job.calls / PARTS)
    const own: PrefetchingJob = { ...job, calls, seed: job.seed + 10 * part }
    const execArgv = LOADERS.flatMap((loader) => ['--import', loader])
    const child: ChildProcess = fork(path, [JSON.stringify(own)], { execArgv })
    onTestFinished(() => void child.kill('SIGKILL'))
    child.on('message', (message) => told.push(message as Told))
    const ended = once(child, 'exit')
    if (isKilled) {
      await sleep(2_000 + random() * 2_000)
      child.kill('SIGKILL')
      killed()
    }
    await ended
  }
  return told
}
const PARTS = 4

async function grantsIn(files: readonly string[]): Promise<Grant[]> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8')))
  // A killed process may leave half a line.
  const lines = texts.flatMap((text) => text.split('\n').filter((line) => line.endsWith('}')))
  return lines.map((line) => JSON.parse(line))
}

/** The largest sum of the units granted in any time, above what the limit allows in a time longer by `for`. */
function excessIn(grants: readonly Grant[], { most, perMs = 0 }: PrefetchLimit): number {
  const byEnd = grants.toSorted((one, other) => one.ended - other.ended)
  let excess = Number.NEGATIVE_INFINITY
  for (let first = 0; first < byEnd.length; first += 1 + Math.floor(byEnd.length / 300)) {
    const from = byEnd[first]?.begun ?? 0
    let sum = 0
    for (const { units, begun, ended } of byEnd) {
      // The whole call lies in this time.
      if (begun < from) continue
      sum += units
      excess = Math.max(excess, sum - (most + (ended - from + FOR_MS) * perMs))
    }
  }
  return excess
}

test(`prefetch of ${PROCESSES} processes that are killed, on connections that break, seed ${SEED}`, async () => {
  const database = await emptyDatabase()
  await migrate(database)
  const url = await urlOf(database)
  const proxy = await FaultyProxy.start(url)
  const breaks = ['cut before', 'cut after', 'stall before', 'stall after'] as const
  proxy.fault = () => {
    const chance = random()
    if (chance < 0.004) return breaks[Math.floor((chance / 0.004) * 4)] ?? 'pass'
    return chance > 0.98 ? Math.ceil(random() * 40) : 'pass'
  }
  const folder = await mkdtemp(join(tmpdir(), 'prefetch-'))
  let kills = 0
  const files = Array.from({ length: PROCESSES }, (_, process) => join(folder, `${process}`))
  const prefetching = { tokens: TOKENS, for: FOR_MS, mayLose: TOKENS }
  const told = await Promise.all(
    files.map((file, process) =>
      life(
        { url: proxy.through(url), file, seed: SEED + process, calls: CALLS / PROCESSES, prefetching },
        () => kills++,
      ),
    ),
  )
  await proxy.close()

  const grants = await grantsIn(files)
  let windows = 0
  let late = Number.NEGATIVE_INFINITY
  for (const [place, limit] of prefetchLimits.entries()) {
    for (const key of [0, 1]) {
      const own = grants.filter((each) => each.limit === place && each.key === key)
      const where = `${limit.prefix}, key ${key}`
      if (limit.perMs !== undefined) {
        expect.soft(excessIn(own, limit), where).toBeLessThanOrEqual(1)
        continue
      }
      const sums = new Map<number, number>()
      for (const { units, start, prefetched, begun } of own) {
        sums.set(start, (sums.get(start) ?? 0) + units)
        // Server and processes have one clock here. The server rounds the start to a millisecond.
        if (prefetched) late = Math.max(late, begun - start - (limit.periodMs ?? Number.POSITIVE_INFINITY))
      }
      windows += sums.size
      for (const [start, sum] of sums)
        expect.soft(sum, `${where} from ${start}`).toBeLessThanOrEqual(limit.most)
      if (!limit.prefix.includes('year')) continue
      const [row] = await database.rows(
        `select count from rate_limit_${limit.durable ? 'durable' : 'ephemeral'} where prefix = $1 and key = $2`,
        [limit.prefix, `key ${key}`],
      )
      const granted = [...sums.values()].reduce((total, sum) => total + sum, 0)
      // Nothing was granted that is not charged.
      expect.soft(granted, where).toBeLessThanOrEqual(Number(row?.['count']))
    }
  }
  const all = told.flat()
  const fromMemory = all.reduce((sum, each) => sum + each.fromMemory, 0)
  const errors: Record<string, number> = {}
  for (const each of all) {
    for (const [code, count] of Object.entries(each.errors)) errors[code] = (errors[code] ?? 0) + count
  }
  console.log(
    `seed ${SEED}: ${grants.length} grants, ${fromMemory} told from memory, ${kills} processes killed, ` +
      `${windows} windows, errors ${JSON.stringify(errors)}`,
  )
  // No stock was used after the end of its window.
  expect(late).toBeLessThanOrEqual(1)
  expect(fromMemory).toBeGreaterThan(0)
  expect(kills).toBeGreaterThan(0)
  await rm(folder, { recursive: true })
  await database.close()
}, 3_600_000)
