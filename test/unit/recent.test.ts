import { expect, test } from 'vitest'
import { Recent } from '../../src/base/recent.ts'

test('it forgets the value that was added first, and each that was taken', () => {
  const recent = new Recent<string, number>(3)
  for (const [place, key] of ['a', 'b', 'c', 'a', 'd'].entries()) recent.add(key, place)
  expect(recent.take('b')).toBeUndefined()
  expect(recent.take('a')).toBe(3)
  expect(recent.take('a')).toBeUndefined()
  recent.add('e', 5)
  expect(['c', 'd', 'e'].map((key) => recent.take(key))).toEqual([2, 4, 5])
})
