import Table from 'cli-table3'
import type { Figure, LoadResult } from '../loads/load.ts'
import type { Measured } from '../rounds.ts'
import type { Judged } from './judge.ts'

/** The medians of a load, and how many times as fast the baseline is. */
export function loadTable(result: LoadResult): string {
  const lines = [`\n${result.title}`]
  if (result.measured.length > 0) lines.push(terminal(medians(result)))
  for (const [name, value] of Object.entries(result.facts ?? {})) lines.push(`  ${name}: ${short(value)}`)
  for (const [name, values] of Object.entries(result.seconds ?? {})) {
    lines.push(`  ${name}, checks in each second: ${values.map(whole).join(', ')}`)
  }
  return lines.join('\n')
}

export function targetTable(judged: readonly Judged[]): string {
  return `\nTargets\n${terminal(targetsOf(judged))}`
}

/** A table as it is shown in the terminal, or written to a page. */
export interface Grid {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

function terminal({ head, rows }: Grid): string {
  const table = new Table({
    head: [...head],
    colAligns: head.map((_, place) => (place === 0 ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  })
  for (const row of rows) table.push([...row])
  return table.toString()
}

export function targetsOf(judged: readonly Judged[]): Grid {
  const rows = judged.map(({ load, against, asked, measured, met }) => {
    return [`${load}: ${against}`, asked, measured, met ? 'met' : 'NOT MET']
  })
  return { head: ['load', 'asked', 'measured', ''], rows }
}

/** A column. It is shown if any participant has a value for it. */
interface Column {
  readonly head: string
  cell(one: Measured): string | undefined
}

export function medians({ measured, baseline, comparedBy = 'perSecond' }: LoadResult): Grid {
  const base = measured.find(({ name }) => name === baseline)
  const columns = [
    ...FIGURES,
    ...(base ? [{ head: aheadHead(comparedBy), cell: (one: Measured) => ahead(base, one, comparedBy) }] : []),
  ].filter(({ cell }) => measured.some((one) => cell(one) !== undefined))
  return {
    head: ['', ...columns.map(({ head }) => head)],
    rows: measured.map((one) => [one.name, ...columns.map(({ cell }) => cell(one) ?? '')]),
  }
}

const FIGURES: readonly Column[] = [
  { head: 'checks a second', cell: ({ median }) => whole(median.perSecond) },
  { head: 'p50 ms', cell: ({ median }) => short(median.p50Ms) },
  { head: 'p99 ms', cell: ({ median }) => short(median.p99Ms) },
  { head: 'server CPU µs', cell: ({ median }) => shortIf(median.serverCpuUs) },
  { head: 'Node CPU µs', cell: ({ median }) => shortIf(median.nodeCpuUs) },
]

function aheadHead(figure: Figure): string {
  const words = { perSecond: '', p50Ms: ' (p50)', p99Ms: ' (p99)', serverCpuUs: '', nodeCpuUs: '' }
  return `baseline ahead by${words[figure]}`
}

/** More checks a second are better. Longer times are worse. */
function ahead(base: Measured, one: Measured, figure: Figure): string {
  if (one === base) return 'baseline'
  const ratio = (base.median[figure] ?? Number.NaN) / (one.median[figure] ?? Number.NaN)
  return `${short(figure === 'perSecond' ? ratio : 1 / ratio)}x`
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en')
}

function short(value: number): string {
  return value >= 1000 ? whole(value) : String(Number(value.toPrecision(3)))
}

function shortIf(value: number | undefined): string | undefined {
  return value === undefined ? undefined : short(value)
}
