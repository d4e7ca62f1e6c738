import { expect, test } from 'vitest'
import { Pace } from '../../../src/cli/top/pace.ts'

test('denials a second are those of the last minute', () => {
  const pace = new Pace()
  const look = (at: number, denials: number, from = 0) => pace.note(from, { at: at * 1000, denials })
  expect(look(0, 100)).toBeUndefined()
  expect(look(2, 110)).toBe(5)
  expect(look(60, 160)).toBe(1)
  // The look at second 2 is the last one that is a minute old.
  expect(look(62, 230)).toBe(2)
  expect(look(200, 230)).toBe(0)
})

test('begins again when an hour is left out', () => {
  const pace = new Pace()
  pace.note(0, { at: 0, denials: 100 })
  expect(pace.note(3_600_000, { at: 2000, denials: 20 })).toBeUndefined()
  expect(pace.note(3_600_000, { at: 4000, denials: 24 })).toBe(2)
})
