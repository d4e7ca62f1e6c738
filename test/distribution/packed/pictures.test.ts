import { readFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { draw } from '../../../examples/pictures/draw.ts'
import { drawPrefetch, type Granting, playPrefetch } from '../../../examples/pictures/prefetch.ts'
import { SCENES } from '../../../examples/pictures/scenes.ts'
import { firstWaitMs, mostWithin, play, type Run, type Scene } from '../../../examples/pictures/traffic.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'
import { watch } from '../../support/watch.ts'

useFakeTime()

// The pictures of docs/algorithms.md and docs/prefetch.md, and what the pages say about them.

let client: PGlite
const played = new Map<string, Promise<Run[]>>()
beforeAll(async () => {
  client = await PGlite.create()
  await client.exec(tableSql().join(';'))
})
afterAll(() => client.close())

function runsOf(scene: Scene): Promise<Run[]> {
  const runs = played.get(scene.file) ?? play(scene, drizzle({ client }))
  played.set(scene.file, runs)
  return runs
}

for (const scene of SCENES) {
  test(`docs/${scene.file} shows the limiters' answers: \`npm run pictures\` draws it`, async () => {
    await expect(draw(scene, await runsOf(scene))).toMatchFileSnapshot(`../../../docs/${scene.file}`)
  })
}

describe('four processes with and without prefetch', () => {
  let runs: readonly Granting[]

  test('docs/prefetch.svg shows what they were granted: `npm run pictures` draws it', async () => {
    fakeTime()
    const db = drizzle({ client })
    runs = await playPrefetch({
      watch: (count) => watch(db, count).db,
      advance: async (ms) => void (await vi.advanceTimersByTimeAsync(ms)),
    })
    vi.useRealTimers()
    await expect(drawPrefetch(runs)).toMatchFileSnapshot('../../../docs/prefetch.svg')
  })

  test('never more than the limit, and with prefetch as much, by a fifth of the statements', () => {
    const [without, prefetching] = runs as [Granting, Granting]
    for (const { points } of runs) {
      expect(Math.max(...points.map(({ charged }) => charged))).toBe(1800)
      for (const { granted, charged } of points) expect(granted).toBeLessThanOrEqual(charged)
    }
    expect(prefetching.denials.length).toBe(without.denials.length)
    expect(prefetching.statements).toBeLessThan(without.statements / 5)
  })
})

test('the page has the figures of the burst', async () => {
  const page = (await readFile('docs/algorithms.md', 'utf8')).replaceAll(/ +/g, ' ')
  const [burst] = SCENES
  const runs = burst ? await runsOf(burst) : []
  expect(runs).toHaveLength(5)
  for (const run of runs) {
    expect(page).toContain(`| \`${run.name}\` | ${mostWithin(4000, run)} | ${mostWithin(10_000, run)} |`)
  }
})

test('the longest wait for one unit of a sliding window is a window and its share of one unit', async () => {
  const limiters = [1, 3, 100].map((tokens) => Ratelimit.slidingWindow(tokens, '10s'))
  const waits = limiters.map(async (limiter, place) => {
    const db = drizzle({ client })
    const ratelimit = new Ratelimit({ db, limiter, prefix: `wait ${place}`, clock: () => new Date(0) })
    const { limit } = await ratelimit.getRemaining('client')
    await ratelimit.limit('client', { rate: limit })
    return (await ratelimit.limit('client')).retryAfter
  })
  expect(await Promise.all(waits)).toEqual([20_000, 13_334, 10_100])
})

test('gcra without a burst, and the bucket with continuous refill, answer alike', async () => {
  const scene = {
    ...{ file: 'alike', title: '', about: '', untilMs: 8000, lookEveryMs: 1000 },
    limiters: {
      gcra: Ratelimit.gcra(3, '4s'),
      bucket: Ratelimit.tokenBucket(3, '4s', 3, { refill: 'continuous' }),
    },
    calls: [0, 0, 0, 0, 700, 1333, 1334, 1335, 2667, 2668, 5000, 5000, 5000, 6001],
  }
  const [gcra, bucket] = await runsOf(scene)
  expect(gcra && { ...gcra, name: '' }).toEqual(bucket && { ...bucket, name: '' })
  expect(gcra && firstWaitMs(gcra)).toBe(1334)
})

test('a limit and a burst that add up to ten bound any ten seconds by ten', async () => {
  const scene = {
    ...{ file: 'bound', title: '', about: '', untilMs: 25_000, lookEveryMs: 25_000 },
    limiters: { gcra: Ratelimit.gcra(8, '10s', { burst: 2 }) },
    calls: Array.from({ length: 200 }, (_, i) => i * 125),
  }
  const [gcra] = await runsOf(scene)
  // A span that holds both of its ends.
  expect(gcra && mostWithin(10_001, gcra)).toBe(10)
})
