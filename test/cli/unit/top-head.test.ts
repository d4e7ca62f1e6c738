import { expect, test } from 'vitest'
import { contentOf } from '../../../src/cli/top/table.ts'

test('the head has the time with two digits for each part, in the morning too', () => {
  const at = new Date(2026, 0, 15, 1, 2, 3).getTime()
  const [first] = contentOf({ database: 'app on db', at, since: at, limits: [] })
  expect(first?.text).toMatch(/^01:02:03 \S+ {2}app on db$/)
})

test.each([
  [1, '01:00'],
  [0, '00:00'],
  [-1, '14 Jan, 23:00'],
  [-24 * 6, '9 Jan, 00:00'],
])('the hour from which denials count has its day, if that is not today: %i h', (hour, said) => {
  const [at, since] = [new Date(2026, 0, 15, 1, 2, 3), new Date(2026, 0, 15, hour)].map(Number)
  const report = { database: 'app', at: at ?? 0, since: since ?? 0, limits: [] }
  expect(contentOf(report)[1]?.text).toBe(`0 denied since ${said}, 0 a second now`)
})
