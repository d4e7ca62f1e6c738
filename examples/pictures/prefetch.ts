import { type Database, type Layer, Ratelimit } from 'drizzle-ratelimit'
import { prefetch } from 'drizzle-ratelimit/prefetch'
import type { EChartsOption } from 'echarts'
import { ALLOWED, BOUGHT, DASHES, DENIED, INK, svgOf, TICKS, WIDTH } from './svg.ts'

// What four processes are granted with and without prefetch.

/** How often each of the processes calls: the time between two calls in milliseconds. */
const PROCESSES = [10, 16, 32, 100]
const LIMIT = 1_800
const UNTIL_MS = 20_000
const LAYER = prefetch({ tokens: 50, for: '1s' })
const START = Date.UTC(2026, 0, 1)

/** What four processes were granted. */
export interface Granting {
  readonly name: string
  /** Time, what was granted in the window, and what its row had charged. */
  readonly points: readonly { readonly time: number; readonly granted: number; readonly charged: number }[]
  readonly denials: readonly number[]
  readonly calls: number
  readonly statements: number
}

/** How the traffic is played. */
export interface Stage {
  /** Makes a database that counts its statements in `count`. */
  readonly watch: (count: () => void) => Database
  /** Lets the timers of the processes run for so long. */
  readonly advance: (ms: number) => Promise<void>
}

/** The same calls without prefetch and with it. */
export async function playPrefetch(stage: Stage): Promise<Granting[]> {
  return [
    await grant(stage, 'without prefetch', []),
    await grant(stage, "prefetch({ tokens: 50, for: '1s' })", [LAYER]),
  ]
}

async function grant(stage: Stage, name: string, use: Layer[]): Promise<Granting> {
  let [time, statements, calls] = [0, 0, 0]
  const common = {
    ...{ limiter: Ratelimit.fixedWindow(LIMIT, '10s'), prefix: `prefetch ${name}`, cleanupProbability: 0 },
    clock: () => new Date(START + time),
  }
  const db = stage.watch(() => statements++)
  const processes = PROCESSES.map(() => new Ratelimit({ ...common, db, use }))
  const row = new Ratelimit({ ...common, db: stage.watch(() => {}) })
  const points: { time: number; granted: number; charged: number }[] = []
  const denials: number[] = []
  let [window, granted] = [START, 0]
  for (; time < UNTIL_MS; time += STEP_MS) {
    for (const [place, ratelimit] of processes.entries()) {
      if (time % (PROCESSES[place] ?? 1) !== 0) continue
      calls++
      const answer = await ratelimit.limit('key')
      if (!answer.success) denials.push(time)
      else if (answer.start === window) granted++
      else [window, granted] = [answer.start ?? 0, 1]
    }
    await stage.advance(STEP_MS)
    if (time % LOOK_EVERY_MS !== 0) continue
    const { used } = await row.getRemaining('key')
    points.push({ time, granted, charged: used })
  }
  for (const each of processes) await each.close()
  return { name, points, denials, calls, statements }
}

/** All calls come at multiples of this. */
const STEP_MS = 2
const LOOK_EVERY_MS = 50

const SIZE = { left: 48, right: 14, top: 122, panel: 130, gap: 56 }

/** A panel without prefetch and one with it, drawn as SVG. */
export function drawPrefetch(runs: readonly Granting[]): string {
  const topOf = (place: number) => SIZE.top + place * (SIZE.panel + SIZE.gap)
  const line = { type: 'line', showSymbol: false, lineStyle: { width: 1.5 } } as const
  const option: EChartsOption = {
    title: [
      {
        ...{ text: 'Four processes and one limit', left: 0, top: 4, padding: [4, 0], itemGap: 6 },
        subtext: "fixedWindow(1_800, '10s'); calls every 10, 16, 32 and 100 ms for two windows",
        textStyle: { color: INK, fontSize: 18, fontWeight: 600 },
        subtextStyle: { color: INK, fontSize: 13 },
      },
      ...runs.map(({ name }, place) => ({
        ...{ text: name, left: 0, top: topOf(place) - 26, padding: 0 },
        textStyle: {
          color: INK,
          fontSize: 14,
          fontWeight: 600 as const,
          fontFamily: 'ui-monospace, monospace',
        },
      })),
      ...runs.map((run, place) => ({
        ...{ text: summary(run), left: WIDTH - SIZE.right, top: topOf(place) - 25, padding: 0 },
        textAlign: 'right' as const,
        textStyle: { color: INK, fontSize: 12, fontWeight: 'normal' as const },
      })),
    ],
    legend: {
      ...{ left: 0, top: 62, padding: 0, itemGap: 22, itemWidth: 16, itemHeight: 10, selectedMode: false },
      textStyle: { color: INK, fontSize: 12 },
      data: [
        { name: 'granted in the window', icon: 'rect' },
        { name: 'charged in the row', icon: 'rect' },
        { name: 'limit', icon: DASHES },
        { name: 'denied', icon: TICKS },
      ],
    },
    grid: runs.map((_, place) => ({
      ...{
        left: SIZE.left,
        right: SIZE.right,
        top: topOf(place),
        height: SIZE.panel,
        outerBoundsMode: 'none',
      },
    })),
    xAxis: runs.map((_, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, max: UNTIL_MS, interval: 5000, axisTick: { show: false } },
      axisLine: { lineStyle: { color: INK, opacity: 0.5 } },
      axisLabel: { show: gridIndex === runs.length - 1, color: INK, formatter: secondsOf },
      splitLine: { lineStyle: { color: INK, opacity: 0.18 } },
    })),
    yAxis: runs.map((_, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, max: LIMIT * 1.15, splitLine: { show: false } },
      ...{ axisLine: { show: false }, axisTick: { show: false } },
      axisLabel: { color: INK, customValues: [0, LIMIT] },
    })),
    series: runs.flatMap(({ points, denials }, place) => {
      const at = { xAxisIndex: place, yAxisIndex: place, silent: true } as const
      return [
        {
          ...{ ...at, ...line, name: 'charged in the row', color: BOUGHT },
          data: points.map(({ time, charged }) => [time, charged]),
        },
        {
          ...{ ...at, ...line, name: 'granted in the window', color: ALLOWED, areaStyle: { opacity: 0.2 } },
          data: points.map(({ time, granted }) => [time, granted]),
        },
        {
          ...{ ...at, ...line, name: 'limit', color: INK, lineStyle: { width: 1.5, type: 'dashed' } },
          data: [
            [0, LIMIT],
            [UNTIL_MS, LIMIT],
          ],
        },
        {
          ...{ ...at, type: 'scatter', name: 'denied', color: DENIED, symbol: 'rect', symbolSize: [1.6, 9] },
          // Those of one look share a mark.
          data: [...new Set(denials.map(toLook))].map((time) => [time, LIMIT * 1.1]),
        },
      ]
    }),
  }
  return svgOf(option, topOf(runs.length - 1) + SIZE.panel + 34)
}

function toLook(time: number): number {
  return time - (time % LOOK_EVERY_MS)
}

function secondsOf(time: number): string {
  return `${time / 1000} s`
}

function summary({ calls, denials, statements }: Granting): string {
  return `${calls} calls · ${calls - denials.length} granted · ${statements} statements`
}
