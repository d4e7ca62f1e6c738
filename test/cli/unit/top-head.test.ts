import { expect, test } from 'vitest'
import { contentOf } from '../../../src/cli/top/table.ts'

test('the head has the time with two digits for each part, in the morning too', () => {
  const at = new Date(2026, 0, 15, 1, 2, 3).getTime()
  const [first] = contentOf({ database: 'app on db', at, since: at, limits: [] })
  expect(first?.text).toMatch(/^01:02:03 \S+ {2}app on db$/)
})
