import stringWidth from 'string-width'
import { inDigits, inRule, inTime, printable } from '../../shared/readable.ts'
import type { TopKey } from './keys.ts'
import { isAtLimit, type TopLimit, type TopReport } from './reading.ts'

/** A line, and how it looks in a terminal. */
export interface ScreenLine {
  readonly text: string
  readonly style?: 'bold' | 'red' | 'inverse'
}

/** The widest key, and the narrowest that is worth a column next to it. */
const [MAX_KEY, MIN_KEY] = [48, 16]

/** The columns after the key, as they stand. */
const COLUMNS = ['used', 'left', 'limit', 'full in', 'denied', 'a second'] as const

/** Those that go when the terminal is too narrow, the first one first. */
const DISPENSABLE = ['limit', 'used', 'a second', 'full in', 'left'] as const

type Column = (typeof COLUMNS)[number]

interface TableRow extends Omit<ScreenLine, 'text'> {
  readonly key: string
  readonly cells: Readonly<Partial<Record<Column, string>>>
}

/** What the lines of a report have to fit. */
interface Shape {
  /** How many columns there are. Default: as many as it takes. */
  readonly width?: number
  /** How often it is read again. */
  readonly every?: string
}

/** The report as lines: two of head, the titles, and the rows. */
export function contentOf(
  report: TopReport,
  { width = Number.POSITIVE_INFINITY, every }: Shape = {},
): ScreenLine[] {
  const rows = report.limits.flatMap((limit) => [limitRow(limit), ...keyRows(limit, report.at)])
  const titles = Object.fromEntries(COLUMNS.map((column) => [column, column]))
  return [
    ...headOf(report, every).map((text) => ({ text: fitting(text, width) })),
    ...inColumns([{ key: '', cells: titles, style: 'inverse' }, ...rows], width),
  ]
}

function headOf({ database, at, since, limits }: TopReport, every: string | undefined): string[] {
  const all = limits.reduce((sum, { denials }) => sum + denials, 0)
  const pace = limits.reduce((sum, each) => sum + each.pace, 0)
  const hour = { hour: '2-digit', minute: '2-digit' } as const
  const isToday = new Date(since).toDateString() === new Date(at).toDateString()
  const day = isToday ? {} : ({ day: 'numeric', month: 'short' } as const)
  const from = new Date(since).toLocaleString('en-GB', { ...day, ...hour })
  // With a zone, the hour of the morning has one digit unless it asks for two.
  const time = new Date(at).toLocaleTimeString('en-GB', { ...hour, second: '2-digit', timeZoneName: 'short' })
  const interval = every === undefined ? '' : `every ${every}  `
  return [
    `${time}  ${interval}${printable(database)}`,
    `${inDigits(all)} denied since ${from}, ${inRule(pace)} a second now`,
  ]
}

function limitRow({ prefix, denials, pace }: TopLimit): TableRow {
  return {
    key: printable(prefix),
    cells: { denied: inDigits(denials), 'a second': inRule(pace) },
    style: 'bold',
  }
}

function keyRows({ keys }: TopLimit, now: number): TableRow[] {
  if (keys.length === 0) return [{ key: '  nothing', cells: {} }]
  return keys.map((key) => ({
    key: `  ${printable(key.key)}`,
    cells: cellsOf(key, now),
    ...(isAtLimit(key) ? { style: 'red' } : {}),
  }))
}

function cellsOf(key: TopKey, now: number): TableRow['cells'] {
  const { used, remaining, limit, reset, blockedUntil, isOther, denials } = key
  const denied = denials === 0 ? '' : inDigits(denials)
  if (used === null) return { denied }
  const time = isOther ? 'other plan' : inTime(reset ?? now, now)
  return {
    used: inDigits(used),
    left: isOther ? '' : inDigits(remaining ?? Number.POSITIVE_INFINITY),
    limit: isOther ? '' : inDigits(limit ?? Number.POSITIVE_INFINITY),
    'full in': blockedUntil === null ? time : `blocked ${inTime(blockedUntil, now)}`,
    denied,
  }
}

/** Lines with the cells below each other: the keys begin at the left, and the others end at the right. */
function inColumns(rows: readonly TableRow[], width: number): ScreenLine[] {
  const widthOf = (column: Column) => Math.max(...rows.map(({ cells }) => cells[column]?.length ?? 0)) + 2
  const most = Math.min(MAX_KEY, Math.max(...rows.map(({ key }) => stringWidth(key))))
  const gone = new Set<Column>()
  const remaining = () => COLUMNS.filter((column) => !gone.has(column))
  const left = () => width - remaining().reduce((sum, column) => sum + widthOf(column), 0)
  for (const column of DISPENSABLE) if (left() < Math.min(most, MIN_KEY)) gone.add(column)
  const forKey = Math.max(1, Math.min(most, left()))
  const shown = remaining()
  return rows.map(({ key, cells, ...look }) => {
    const numbers = shown.map((column) => (cells[column] ?? '').padStart(widthOf(column)))
    const text = padded(fitting(key, forKey), forKey) + numbers.join('')
    return { text: fitting(text, width).trimEnd(), ...look }
  })
}

/** The text with spaces up to the width. */
export function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - stringWidth(text)))
}

const letters = new Intl.Segmenter()

/** The text, cut where it would be wider. Some letters take two columns of a terminal. */
export function fitting(text: string, width: number): string {
  if (stringWidth(text) <= width) return text
  let cut = ''
  for (const { segment } of letters.segment(text)) {
    if (stringWidth(cut + segment) >= width) break
    cut += segment
  }
  return `${cut}…`
}
