import { type EChartsOption, init } from 'echarts'
import { BARE_UPDATE } from '../contenders/bare-update.ts'
import { BEFORE } from '../contenders/before.ts'
import { MANY_CALLERS } from '../loads/concurrent.ts'
import type { LoadResult } from '../loads/load.ts'
import type { Measured } from '../rounds.ts'

/** Readable on white and on black. */
const INK = '#768089'
const COLOURS = { ours: '#2f9e6e', others: '#8b95a5', floor: '#c19a3f' }

const SUBTITLE =
  'Token bucket; one Node process, its stores on the same machine; medians of interleaved rounds'
const WIDTH = 960
const TOP = 104
const ROW = 26
const NAMES = 284
const GAP = 20

/**
 * The throughput of each participant under many callers, with a panel for each load. Undefined if no such load
 * was run.
 */
export function chart(results: readonly LoadResult[]): string | undefined {
  const loads = results.filter(({ name }) => SHOWN.has(name))
  const [first] = loads
  if (!first) return undefined
  const names = first.measured
    .map(({ name }) => name)
    .filter((name) => name !== BEFORE)
    .toSorted((a, b) => standing(a) - standing(b))
  const width = (WIDTH - NAMES - GAP * loads.length) / loads.length
  const height = names.length * ROW
  const left = (place: number) => NAMES + place * (width + GAP)
  const option: EChartsOption = {
    animation: false,
    textStyle: { fontFamily: 'system-ui, sans-serif', color: INK },
    title: [
      {
        ...{ text: 'Checks a second: higher is better', subtext: SUBTITLE, left: 0, top: 0, itemGap: 6 },
        textStyle: { color: INK, fontSize: 18, fontWeight: 600 },
        subtextStyle: { color: INK, fontSize: 12 },
      },
      ...loads.map(({ title }, place) => ({
        ...{ text: title, left: left(place), top: TOP - 24, padding: 0 },
        textStyle: { color: INK, fontSize: 14, fontWeight: 600 },
      })),
    ],
    grid: loads.map((_, place) => ({
      ...{ left: left(place), top: TOP, width, height },
      outerBoundsMode: 'none',
    })),
    // There is room for the number behind the longest bar. The axis begins at 0, so a bar's length is its
    // figure.
    xAxis: loads.map(({ measured }, gridIndex) => ({
      ...{ gridIndex, type: 'value', show: false, min: 0, max: fastest(measured) * 1.3 },
    })),
    yAxis: loads.map((_, gridIndex) => ({
      ...{ gridIndex, type: 'category', data: names, inverse: true, axisTick: { show: false } },
      axisLabel: { show: gridIndex === 0, color: INK, fontSize: 13, margin: 12 },
      axisLine: { show: true, lineStyle: { color: INK, opacity: 0.4 } },
    })),
    series: loads.map(({ measured }, place) => ({
      ...{ type: 'bar', xAxisIndex: place, yAxisIndex: place, barWidth: 15 },
      data: names.map((name) => bar(name, measured)),
      label: { show: true, position: 'right', color: INK, fontSize: 12, formatter: thousands },
    })),
  }
  const image = init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height: TOP + height + 16 })
  image.setOption(option)
  const svg = image.renderToSVGString()
  // Without this, its timer would keep the process alive.
  image.dispose()
  return svg
}

/** With few callers the throughput says no more than the latency. */
const SHOWN: ReadonlySet<string> = new Set(MANY_CALLERS.map(({ name }) => name))

/** This package comes first, the bare UPDATE last. */
function standing(name: string): number {
  if (isOurs(name)) return 0
  return name === BARE_UPDATE ? 2 : 1
}

function isOurs(name: string): boolean {
  return name.startsWith('drizzle-ratelimit')
}

function bar(name: string, measured: readonly Measured[]) {
  const colour = isOurs(name) ? COLOURS.ours : name === BARE_UPDATE ? COLOURS.floor : COLOURS.others
  const found = measured.find((one) => one.name === name)
  return { value: found?.median.perSecond ?? 0, itemStyle: { color: colour, borderRadius: [0, 3, 3, 0] } }
}

function fastest(measured: readonly Measured[]): number {
  return Math.max(...measured.map(({ median }) => median.perSecond))
}

function thousands({ value }: { value?: unknown }): string {
  const number = Number(value) / 1000
  return `${number >= 10 ? Math.round(number) : number.toFixed(1)}k`
}
