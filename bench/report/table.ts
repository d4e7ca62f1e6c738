import Table from 'cli-table3'
import type { LoadResult } from '../loads/load.ts'
import type { Measured } from '../rounds.ts'
import type { Judged } from './targets.ts'

/** The medians of a load, and how many times as fast as each the baseline is. */
export function loadTable({
  title,
  measured,
  baseline,
  comparedBy = 'perSecond',
  facts,
}: LoadResult): string {
  const lines = [`\n${title}`]
  if (measured.length > 0) {
    const table = new Table({
      head: ['', 'checks a second', 'p50 ms', 'p99 ms', ...(baseline ? [aheadHead(comparedBy)] : [])],
      colAligns: ['left', 'right', 'right', 'right', 'right'],
      style: PLAIN,
    })
    const base = measured.find(({ name }) => name === baseline)
    for (const one of measured) {
      const { perSecond, p50Ms, p99Ms } = one.median
      const row = [one.name, Math.round(perSecond).toLocaleString('en'), short(p50Ms), short(p99Ms)]
      table.push(base ? [...row, ahead(base, one, comparedBy)] : row)
    }
    lines.push(table.toString())
  }
  for (const [name, value] of Object.entries(facts ?? {})) lines.push(`  ${name}: ${short(value)}`)
  return lines.join('\n')
}

export function targetTable(judged: readonly Judged[]): string {
  const table = new Table({ head: ['load', 'what', 'asked', 'measured', ''], style: PLAIN })
  for (const { load, against, asked, measured, met } of judged) {
    table.push([load, against, asked, measured, met ? 'met' : 'NOT MET'])
  }
  return `\nTargets\n${table}`
}

const PLAIN = { head: [], border: [], compact: true }

type Figure = NonNullable<LoadResult['comparedBy']>

function aheadHead(figure: Figure): string {
  return `baseline ahead by${{ perSecond: '', p50Ms: ' (p50)', p99Ms: ' (p99)' }[figure]}`
}

/** More checks a second are better, longer times are worse. */
function ahead(base: Measured, one: Measured, figure: Figure): string {
  if (one === base) return 'baseline'
  const ratio = base.median[figure] / one.median[figure]
  return `${short(figure === 'perSecond' ? ratio : 1 / ratio)}x`
}

function short(value: number): string {
  return value >= 1000 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)))
}
