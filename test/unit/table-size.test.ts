import { expect, test } from 'vitest'
import { TableSize } from '../../src/kernel/database/statement.ts'

// This needs the class: two statements have to end in the other order than they were sent in, while the table
// grows between them. behaviour/long/plans tests what the size is for.

test('a size that was seen after a statement was sent replaces the size that the statement finds', () => {
  const size = new TableSize()
  size.saw(5, 20)
  size.saw(1, 10)
  expect(size.expected).toBe(5)
  size.saw(1, 20)
  expect(size.expected).toBe(1)
})
