import type { EChartsOption } from 'echarts'
import { ALLOWED, BOUGHT, DASHES, DENIED, INK, svgOf, TICKS } from './svg.ts'

/** What one look found. */
export interface Look {
  readonly time: number
  /** The period that it lies in. */
  readonly start: number
  readonly end: number
  readonly limit: number
  readonly used: number
  /** Whether the call before it was denied. */
  readonly denied: boolean
}

/** What an organisation used. */
export interface Usage {
  readonly name: string
  readonly about: string
  readonly looks: readonly Look[]
  /** When a mail was queued. */
  readonly mails: readonly number[]
  local(time: number): string
}

const SIZE = { left: 52, right: 48, top: 124, panel: 128, gap: 88 }
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact' })

/** A panel for each organisation, drawn as SVG: what it used against its quota. */
export function drawUsage(usages: readonly Usage[], until: number): string {
  const panels = usages.map((usage, place) => ({
    ...{ ...usage, place, top: SIZE.top + place * (SIZE.panel + SIZE.gap) },
    starts: [...new Set(usage.looks.map(({ start }) => start))],
    limits: [...new Set(usage.looks.map(({ limit }) => limit))],
  }))
  const earliest = Math.min(...panels.flatMap(({ starts }) => starts))
  const option: EChartsOption = {
    title: [
      {
        ...{ text: 'Three organisations and what their plans allow', left: 0, top: 4, padding: [4, 0] },
        textStyle: { color: INK, fontSize: 18, fontWeight: 600 },
      },
      ...panels.map(({ name, about, top }) => ({
        ...{ text: name, subtext: about, left: 0, top: top - 52, padding: 0, itemGap: 5 },
        textStyle: { color: INK, fontSize: 14, fontWeight: 600 as const },
        subtextStyle: { color: INK, fontSize: 12 },
      })),
    ],
    legend: {
      ...{ left: 0, top: 36, padding: 0, itemGap: 22, itemWidth: 16, itemHeight: 10, selectedMode: false },
      textStyle: { color: INK, fontSize: 12 },
      data: [
        { name: 'used', icon: 'rect' },
        { name: 'debt', icon: 'rect' },
        { name: 'quota', icon: DASHES },
        { name: 'denied', icon: TICKS },
        { name: 'mail queued', icon: 'diamond' },
      ],
    },
    grid: panels.map(({ top }) => ({
      ...{ left: SIZE.left, right: SIZE.right, top, height: SIZE.panel, outerBoundsMode: 'none' },
    })),
    // The time axis has a tick where a period begins, in the organisation's time zone.
    // The other axis has a tick for each quota.
    xAxis: panels.map(({ local, starts }, gridIndex) => ({
      ...{ gridIndex, type: 'time', min: earliest, max: until, splitLine: { show: false } },
      axisTick: { customValues: starts },
      axisLabel: { color: INK, customValues: starts, formatter: local },
      axisLine: { lineStyle: { color: INK, opacity: 0.4 } },
    })),
    yAxis: panels.map(({ looks, limits }, gridIndex) => ({
      ...{ gridIndex, type: 'value', min: 0, splitLine: { show: false } },
      max: 1.2 * Math.max(...limits, ...looks.map(({ used }) => used)),
      axisLabel: {
        color: INK,
        customValues: [0, ...limits],
        formatter: (used: number) => COMPACT.format(used),
      },
    })),
    series: panels.flatMap(({ name, looks, mails, place }) => {
      const shown = looks.flatMap(withEnds)
      const at = { xAxisIndex: place, yAxisIndex: place, silent: true } as const
      const line = { ...at, type: 'line', showSymbol: false, lineStyle: { width: 1.5 } } as const
      const marks = { ...at, type: 'scatter', itemStyle: { opacity: 1 } } as const
      return [
        {
          ...{ ...line, name: 'used', stack: name, color: ALLOWED, areaStyle: { opacity: 0.25 } },
          data: shown.map(({ time, used, limit }) => [time, Math.min(used, limit)]),
        },
        {
          ...{ ...line, name: 'debt', stack: name, color: DENIED, areaStyle: { opacity: 0.8 } },
          lineStyle: { width: 0 },
          data: shown.map(({ time, used, limit }) => [time, Math.max(used - limit, 0)]),
        },
        {
          ...{ ...line, name: 'quota', step: 'end', color: INK, lineStyle: { width: 1.5, type: 'dashed' } },
          data: shown.map(({ time, limit }) => [time, limit]),
        },
        {
          ...{ ...marks, name: 'denied', color: DENIED, symbol: 'rect', symbolSize: [2, 9] },
          symbolOffset: [0, -7],
          data: looks.flatMap(({ time, used, limit, denied }) =>
            denied ? [[time, Math.max(used, limit)]] : [],
          ),
        },
        {
          ...{ ...marks, name: 'mail queued', color: BOUGHT, symbol: 'diamond', symbolSize: 11 },
          data: mails.map((queued) => [queued, looks.find(({ time }) => time === queued)?.used ?? 0]),
        },
      ]
    }),
  }
  return svgOf(option, SIZE.top + panels.length * (SIZE.panel + SIZE.gap) - SIZE.gap + 32)
}

/** Adds two points where a period begins: the end of the one before, and the new one with nothing used. */
export function withEnds<L extends Pick<Look, 'time' | 'start' | 'used'>>(
  look: L,
  place: number,
  looks: readonly L[],
): L[] {
  const before = looks[place - 1]
  if (before?.start === look.start) return [look]
  const begins = { ...look, time: look.start, used: 0 }
  return before ? [{ ...before, time: look.start - 1 }, begins, look] : [begins, look]
}
