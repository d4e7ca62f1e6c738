import type { EChartsOption } from 'echarts'
import { ALLOWED, DENIED, INK, svgOf, TICKS, WIDTH } from './svg.ts'
import { allowedOf, firstWaitMs, mostWithin, type Run, type Scene } from './traffic.ts'

const SIZE = { left: 34, right: 14, top: 130, panel: 84, gap: 50 }

/** A panel for each limiter, drawn as SVG: what was left, and below it each call. */
export function draw(
  { title, about, untilMs }: Pick<Scene, 'title' | 'about' | 'untilMs'>,
  runs: readonly Run[],
): string {
  const topOf = (place: number) => SIZE.top + place * (SIZE.panel + SIZE.gap)
  const last = runs.length - 1
  const option: EChartsOption = {
    title: [
      {
        ...{ text: title, subtext: about, left: 0, top: 4, padding: [4, 0], itemGap: 6 },
        textStyle: { color: INK, fontSize: 18, fontWeight: 600 },
        subtextStyle: { color: INK, fontSize: 13 },
      },
      ...runs.map(({ name }, place) => ({
        ...{ text: name, left: 0, top: topOf(place) - 26, padding: 0 },
        textStyle: { color: INK, fontSize: 14, fontWeight: 600, fontFamily: 'ui-monospace, monospace' },
      })),
      ...runs.map((run, place) => ({
        ...{ text: summary(run), left: WIDTH - SIZE.right, top: topOf(place) - 25, padding: 0 },
        textAlign: 'right' as const,
        textStyle: { color: INK, fontSize: 12, fontWeight: 'normal' as const },
      })),
    ],
    legend: {
      ...{ left: 0, top: 62, padding: 0, itemGap: 22, itemWidth: 14, itemHeight: 10, selectedMode: false },
      textStyle: { color: INK, fontSize: 12 },
      data: [
        { name: 'what is left', icon: 'rect' },
        { name: 'call allowed', icon: TICKS },
        { name: 'call denied', icon: TICKS },
      ],
    },
    grid: runs.map((_, place) => ({
      ...{ left: SIZE.left, right: SIZE.right, top: topOf(place), height: SIZE.panel },
      outerBoundsMode: 'none',
    })),
    xAxis: runs.map((_, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, max: untilMs, interval: intervalOf(untilMs) },
      axisLine: { onZero: true, lineStyle: { color: INK, opacity: 0.5 } },
      axisTick: { show: false },
      axisLabel: {
        show: gridIndex === last,
        color: INK,
        formatter: (time: number) => `${time / 1000} s`,
      },
      splitLine: { lineStyle: { color: INK, opacity: 0.18 } },
    })),
    yAxis: runs.map(({ limit }, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: -0.8 * limit, max: limit, splitLine: { show: false } },
      ...{ axisLine: { show: false }, axisTick: { show: false } },
      axisLabel: { color: INK, customValues: [0, limit] },
    })),
    series: runs.flatMap(({ limit, calls, left }, place) => {
      const at = { xAxisIndex: place, yAxisIndex: place, silent: true } as const
      const ticks = (allowed: boolean, y: number) => ({
        ...{ ...at, type: 'scatter' as const, symbol: 'rect', symbolSize: [2.4, 11] },
        itemStyle: { opacity: 1 },
        data: calls.filter((call) => call.allowed === allowed).map(({ time }) => [time, y * limit]),
      })
      return [
        {
          ...{ ...at, type: 'line', name: 'what is left', color: ALLOWED, showSymbol: false, step: 'end' },
          lineStyle: { width: 1.5 },
          areaStyle: { opacity: 0.22 },
          data: left.map((point) => [...point]),
        },
        { ...ticks(true, -0.24), name: 'call allowed', color: ALLOWED },
        { ...ticks(false, -0.58), name: 'call denied', color: DENIED },
      ]
    }),
  }
  return svgOf(option, topOf(last) + SIZE.panel + 34)
}

/** Between two marks of the axis of time. */
function intervalOf(untilMs: number): number {
  if (untilMs > 60_000) return 10_000
  return untilMs % 5000 === 0 ? 5000 : 2000
}

function summary(run: Run): string {
  const wait = (firstWaitMs(run) / 1000).toLocaleString('en', { maximumFractionDigits: 3 })
  return [
    `${allowedOf(run)} of ${run.calls.length} allowed`,
    `at most ${mostWithin(4000, run)} in 4 s, ${mostWithin(10_000, run)} in 10 s`,
    `first denial: wait ${wait} s`,
  ].join(' · ')
}
