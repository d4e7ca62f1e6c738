import { expect, test } from 'vitest'
import { TableSize } from '../../src/database/run.ts'

test('a size that was seen after a statement was sent outlasts what that statement found', () => {
  const size = new TableSize()
  size.saw(5, 20)
  size.saw(1, 10)
  expect(size.believed).toBe(5)
  size.saw(1, 20)
  expect(size.believed).toBe(1)
})
