import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { balance } from '../../src/credits/balance.ts'
import type { RowKind } from '../../src/kernel/limits/algorithm.ts'
import { ROWS } from '../../src/kernel/limits/rows.ts'
import { SQL_NAMES, STATE_COLUMNS } from '../../src/kernel/sql/columns.ts'
import { allExamples } from '../support/limits.ts'

// A row's filled columns say whose it is.

const kinds = Object.entries<RowKind>(ROWS)
const algorithms = [...allExamples.map(({ of }) => of(20, '1s').limiter), balance()].map(
  ({ algorithm }) => algorithm,
)

test('no two algorithms fill the same columns', () => {
  const filled = kinds.map(([, { columns }]) => columns.toSorted().join())
  expect(new Set(filled).size).toBe(kinds.length)
})

test.each(kinds)('a row of %s fills its date', (_, { columns, datedBy }) => {
  expect(columns).toContain(datedBy)
})

test('rows without a count have optional columns, and no two of them have the same date', () => {
  const uncounted = kinds.map(([, kind]) => kind).filter(({ columns }) => !columns.includes('count'))
  expect(uncounted).toEqual(kinds.map(([, kind]) => kind).filter(({ optional }) => optional))
  expect(new Set(uncounted.map(({ datedBy }) => datedBy)).size).toBe(uncounted.length)
})

test.each(algorithms)('$name has periods if it can tell whether one has ended', ({ hasPeriods, sql }) => {
  expect(hasPeriods === true).toBe(sql.ended !== undefined)
})

test.each(algorithms.filter(({ columns }) => columns.includes('count')))(
  'the count of a row of $name is what was used',
  ({ numbers }) => {
    const params = { limit: 20, periodMs: 1000, periodStart: 0, periodEnd: 1000 }
    const { count, ...rest } = numbers.consume(numbers.fresh(0, params), 0, 3, params, 0)
    expect([count, numbers.used({ count, ...rest }, 0, params)]).toEqual([3, 3])
  },
)

test('CONTRIBUTING.md shows who fills which columns', async () => {
  const cellsIn = (line: string) => line.split('|').map((cell) => cell.trim())
  const lines = (await readFile('CONTRIBUTING.md', 'utf8')).split('\n').map(cellsIn)
  const heading = ['', 'rows of', ...STATE_COLUMNS.map((column) => `\`${SQL_NAMES[column]}\``), '']
  const place = lines.findIndex((cells) => cells.join() === heading.join())
  const cellOf = ({ columns, datedBy }: RowKind, column: (typeof STATE_COLUMNS)[number]) =>
    column === datedBy ? 'its date' : columns.includes(column) ? 'filled' : ''
  expect(lines.slice(place + 2, place + 2 + kinds.length)).toEqual(
    kinds.map(([name, kind]) => ['', `\`${name}\``, ...STATE_COLUMNS.map((each) => cellOf(kind, each)), '']),
  )
})
