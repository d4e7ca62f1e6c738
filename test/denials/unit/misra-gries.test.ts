import fc from 'fast-check'
import { expect, test } from 'vitest'
import { MisraGries } from '../../../src/denials/misra-gries.ts'
import { runs } from '../../support/runs.ts'

/** Texts and how often each is added at once. A few of them occur often. */
const added = fc.array(
  fc.record({
    text: fc.oneof(fc.constantFrom('a', 'b', 'c'), fc.string({ maxLength: 2 })),
    times: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 9 })),
  }),
  { maxLength: 200 },
)

function exactOf(all: readonly { readonly text: string; readonly times: number }[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { text, times } of all) counts.set(text, (counts.get(text) ?? 0) + times)
  return counts
}

test('a count is never too high, and too low by at most its share of all', () => {
  fc.assert(
    fc.property(added, fc.integer({ min: 1, max: 8 }), (all, most) => {
      const sketch = new MisraGries(most)
      for (const { text, times } of all) sketch.add(text, times)
      const counts = sketch.takeAll()
      const sum = all.reduce((before, { times }) => before + times, 0)
      expect(counts.size).toBeLessThanOrEqual(most)
      for (const [text, exact] of exactOf(all)) {
        const count = counts.get(text) ?? 0
        expect(count).toBeLessThanOrEqual(exact)
        expect(count).toBeGreaterThanOrEqual(exact - sum / (most + 1))
      }
    }),
    runs(600),
  )
})

test('with room for all texts, every count is exact', () => {
  fc.assert(
    fc.property(added, (all) => {
      const exact = exactOf(all)
      const sketch = new MisraGries(Math.max(exact.size, 1))
      for (const { text, times } of all) sketch.add(text, times)
      expect(sketch.takeAll()).toEqual(exact)
      expect(sketch.takeAll()).toEqual(new Map())
    }),
    runs(300),
  )
})

test('counts that are put back keep the bound', () => {
  fc.assert(
    fc.property(added, added, fc.integer({ min: 1, max: 8 }), (before, after, most) => {
      const sketch = new MisraGries(most)
      for (const { text, times } of before) sketch.add(text, times)
      const taken = sketch.takeAll()
      for (const { text, times } of after) sketch.add(text, times)
      for (const [text, times] of taken) sketch.add(text, times)
      const counts = sketch.takeAll()
      const all = [...before, ...after]
      const sum = all.reduce((total, { times }) => total + times, 0)
      for (const [text, exact] of exactOf(all)) {
        const count = counts.get(text) ?? 0
        expect(count).toBeLessThanOrEqual(exact)
        expect(count).toBeGreaterThanOrEqual(exact - sum / (most + 1))
      }
    }),
    runs(300),
  )
})
