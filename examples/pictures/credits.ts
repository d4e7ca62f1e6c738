import type { EChartsOption } from 'echarts'
import { ALLOWED, BOUGHT, DASHES, DENIED, INK, svgOf, TICKS } from './svg.ts'
import { type Look, withEnds } from './usage.ts'

/** What one look found of the month and of the credits. */
export interface CreditLook extends Look {
  /** What credits have paid for in this period. */
  readonly paidByCredits: number
  readonly credits: number
}

/** What an organisation used of its quota and of its credits. */
export interface CreditUsage {
  readonly about: string
  readonly looks: readonly CreditLook[]
  readonly topUps: readonly { readonly time: number; readonly credits: number }[]
  local(time: number): string
}

const SIZE = { left: 52, right: 48, top: 112, panel: 150, gap: 70 }

/** Two panels, drawn as SVG: what was used against the quota, and the credits that paid for the rest. */
export function drawCredits({ about, looks, topUps, local }: CreditUsage, until: number): string {
  const tops = [SIZE.top, SIZE.top + SIZE.panel + SIZE.gap]
  const starts = [...new Set(looks.map(({ start }) => start))]
  const quota = Math.max(...looks.map(({ limit }) => limit))
  const shown = looks
    .flatMap(withEnds)
    .map((look) => (look.used === 0 ? { ...look, paidByCredits: 0 } : look))
  const used = looks.map((look) => look.used + look.paidByCredits)
  const most = Math.max(...looks.map(({ credits }) => credits))
  const on = (place: number) => ({ xAxisIndex: place, yAxisIndex: place, silent: true }) as const
  const line = { type: 'line', showSymbol: false, lineStyle: { width: 1.5 } } as const
  const marks = { type: 'scatter', itemStyle: { opacity: 1 } } as const
  const option: EChartsOption = {
    title: [
      {
        ...{ text: 'First the month, then the credits', subtext: about, left: 0, top: 4, padding: [4, 0] },
        ...{ itemGap: 6, subtextStyle: { color: INK, fontSize: 12 } },
        textStyle: { color: INK, fontSize: 18, fontWeight: 600 },
      },
      ...['images in the month', 'credits that are left'].map((text, place) => ({
        ...{ text, left: 0, top: (tops[place] ?? 0) - 24, padding: 0 },
        textStyle: { color: INK, fontSize: 12, fontWeight: 600 as const },
      })),
    ],
    legend: {
      ...{ left: 0, top: 58, padding: 0, itemGap: 22, itemWidth: 16, itemHeight: 10, selectedMode: false },
      textStyle: { color: INK, fontSize: 12 },
      data: [
        { name: 'paid by the month', icon: 'rect' },
        { name: 'paid by credits', icon: 'rect' },
        { name: 'quota', icon: DASHES },
        { name: 'denied', icon: TICKS },
        { name: 'top-up', icon: 'diamond' },
      ],
    },
    grid: tops.map((top) => ({
      ...{ left: SIZE.left, right: SIZE.right, top, height: SIZE.panel, outerBoundsMode: 'none' },
    })),
    // A tick where a period begins.
    xAxis: tops.map((_, gridIndex) => ({
      ...{ gridIndex, type: 'time', min: Math.min(...starts), max: until, splitLine: { show: false } },
      axisTick: { customValues: starts },
      axisLabel: { color: INK, customValues: starts, formatter: local },
      axisLine: { lineStyle: { color: INK, opacity: 0.4 } },
    })),
    yAxis: [
      { max: 1.15 * Math.max(...used), customValues: [0, quota] },
      { max: 1.2 * most, customValues: [0, ...topUps.map(({ credits }) => credits)] },
    ].map(({ max, customValues }, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, max, splitLine: { show: false } },
      axisLabel: { color: INK, customValues, formatter: (units: number) => units.toLocaleString('en') },
    })),
    series: [
      {
        ...{ ...on(0), ...line, name: 'paid by the month', stack: 'used', color: ALLOWED },
        areaStyle: { opacity: 0.25 },
        data: shown.map(({ time, used }) => [time, used]),
      },
      {
        ...{ ...on(0), ...line, name: 'paid by credits', stack: 'used', color: BOUGHT },
        ...{ areaStyle: { opacity: 0.45 }, lineStyle: { width: 0 } },
        data: shown.map(({ time, paidByCredits }) => [time, paidByCredits]),
      },
      {
        ...{ ...on(0), ...line, name: 'quota', color: INK, lineStyle: { width: 1.5, type: 'dashed' } },
        data: shown.map(({ time, limit }) => [time, limit]),
      },
      {
        ...{ ...on(0), ...marks, name: 'denied', color: DENIED, symbol: 'rect', symbolSize: [2, 9] },
        symbolOffset: [0, -9],
        data: looks.flatMap(({ time, denied }, place) => (denied ? [[time, used[place] ?? 0]] : [])),
      },
      {
        ...{ ...on(1), ...line, name: 'paid by credits', step: 'end', color: BOUGHT },
        areaStyle: { opacity: 0.25 },
        data: looks.map(({ time, credits }) => [time, credits]),
      },
      {
        ...{ ...on(1), ...marks, name: 'top-up', color: BOUGHT, symbol: 'diamond', symbolSize: 11 },
        label: {
          ...{ show: true, position: 'right', distance: 8, color: INK, fontSize: 12 },
          formatter: ({ dataIndex }: { dataIndex: number }) =>
            `+${topUps[dataIndex]?.credits.toLocaleString('en')}`,
        },
        data: topUps.map(({ time }) => [time, looks.find((look) => look.time === time)?.credits ?? 0]),
      },
    ],
  }
  return svgOf(option, (tops[1] ?? 0) + SIZE.panel + 32)
}
