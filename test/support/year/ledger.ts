import { expect } from 'vitest'
import type { TestDatabase } from '../databases.ts'
import { GRACE_MS, WARN_AT } from './quotas.ts'
import { sumOf } from './world.ts'

/** A period of a key, as it was handed out. */
interface Line {
  readonly key: string
  readonly start: number
  readonly end: number
  /** What it is billed, with its corrections. */
  billed: number
  /** What it has cost. */
  cost: number
  /** What was settled in time, and so crosses thresholds. */
  settled: number
}

/**
 * Every cost is in the one period that holds its time, every period is handed out once with its sum, and the
 * entries of the limiter have the same sums for each period.
 */
export async function expectLedgerToBalance(
  database: TestDatabase,
  { keepsPeriods, isFixed }: Record<'keepsPeriods' | 'isFixed', (key: string) => boolean>,
): Promise<{ readonly lines: number; readonly units: number }> {
  const read = async (query: string) =>
    (await database.rows(query)).map((row) => ({ row, key: String(row['key']), n: numbersIn(row) }))
  const lines = new Map<string, Line[]>()
  for (const { key, n } of await read(
    'select * from ledger where not correction order by key, start, "end"',
  )) {
    const line: Line = { key, start: n('start'), end: n('end'), billed: n('used'), cost: 0, settled: 0 }
    const before = lines.get(key) ?? []
    // Each period has a start and an end of its own.
    expect(line.end).toBeGreaterThan(line.start)
    expect(before.at(-1)?.end ?? 0).toBeLessThanOrEqual(line.start)
    lines.set(key, [...before, line])
  }
  /** What belongs to a period in which nothing was used in the end, so that none was handed out. */
  const nowhere: Line = { key: '', start: 0, end: 0, billed: 0, cost: 0, settled: 0 }
  const lineAt = (key: string, at: number) =>
    lines.get(key)?.find(({ start, end }) => start <= at && at < end) ?? nowhere

  for (const { key, n } of await read('select * from ledger where correction')) {
    const line = lines.get(key)?.find(({ start }) => start === n('start'))
    if (!line) throw new Error('A period was corrected that was not handed out.')
    // If the plan has changed more than once since, the end may be that of a later period.
    if (keepsPeriods(key)) expect(n('end')).toBe(line.end)
    expect(n('end')).toBeGreaterThanOrEqual(line.end)
    line.billed += n('used')
  }
  for (const { key, n, row } of await read('select * from costs')) {
    const line = lineAt(key, n('at'))
    line.cost += n('units')
    if (row['estimate'] === false) line.settled += n('units')
  }
  for (const { key, n, row } of await read('select * from settlements')) {
    const [own, running] = [lineAt(key, n('reserved_at')), lineAt(key, n('at'))]
    const isCorrected = row['corrected'] === true
    const unpaid = n('actual') - n('estimate')
    const isInTime = own === nowhere || n('at') < own.end + GRACE_MS
    if (isCorrected && keepsPeriods(key)) expect(isInTime).toBe(true)
    if (isCorrected || isInTime) own.cost += unpaid
    else running.cost += Math.max(unpaid, 0)
    if (own === running) own.settled += n('actual')
    else if (!isCorrected && !isInTime) running.settled += Math.max(unpaid, 0)
  }
  const all = [...lines.values()].flat()
  expect(nowhere.cost).toBe(0)
  expect(all.map(({ key, start, billed }) => ({ key, start, units: billed }))).toEqual(
    all.map(({ key, start, cost }) => ({ key, start, units: cost })),
  )
  const sums = await read('select key, start, sum(units) as units from entries group by key, start')
  const entries = sums.map(({ key, n }) => [`${key} ${n('start')}`, n('units')] as const)
  const billed = all.map(({ key, start, billed: units }) => [`${key} ${start}`, units] as const)
  const used = (pairs: typeof billed) => new Map(pairs.filter(([, units]) => units !== 0))
  expect(used(entries)).toEqual(used(billed))

  const crossings = new Map<Line, number>()
  for (const { key, n } of await read('select key, at from crossings')) {
    const line = lineAt(key, n('at'))
    crossings.set(line, (crossings.get(line) ?? 0) + 1)
  }
  for (const line of all.filter(({ key }) => !isFixed(key))) {
    // A late settlement may add what crosses nothing.
    expect({ ...line, times: crossings.get(line) ?? 0 }).toEqual({
      ...line,
      times: line.settled >= WARN_AT ? 1 : 0,
    })
  }
  return { lines: all.length, units: sumOf(all.map((line) => line.billed)) }
}

function numbersIn(row: Record<string, unknown>): (name: string) => number {
  return (name) => Number(row[name])
}
