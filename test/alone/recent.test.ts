import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Recent } from '../../src/recent.ts'

/** The keys in the order in which they were asked about or set, and their values. */
class Model {
  #entries: [string, number][] = []
  readonly #max: number

  constructor(max: number) {
    this.#max = max
  }

  get(key: string): number | undefined {
    const value = this.#entries.find(([known]) => known === key)?.[1]
    if (value !== undefined) this.set(key, value)
    return value
  }

  set(key: string, value: number): void {
    this.delete(key)
    this.#entries = [...this.#entries, [key, value] as [string, number]].slice(-this.#max)
  }

  delete(key: string): void {
    this.#entries = this.#entries.filter(([known]) => known !== key)
  }
}

const key = fc.constantFrom(...'abcdefgh')
const step = fc.oneof(
  fc.record({ does: fc.constant('get' as const), key }),
  fc.record({ does: fc.constant('set' as const), key }),
  fc.record({ does: fc.constant('delete' as const), key }),
)

test('the key asked about or set longest ago is forgotten first', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 6 }), fc.array(step, { maxLength: 200 }), (max, steps) => {
      const [recent, model] = [new Recent<number>(max), new Model(max)]
      for (const [number, { does, key }] of steps.entries()) {
        expect(recent[does](key, number)).toEqual(model[does](key, number))
      }
      for (const each of 'abcdefgh') expect(recent.get(each)).toEqual(model.get(each))
    }),
    { numRuns: 500 },
  )
})

test('it forgets when it was emptied and filled again', () => {
  const recent = new Recent<number>(1)
  for (const key of ['a', 'b', 'c']) recent.set(key, 1)
  recent.delete('c')
  for (const key of ['d', 'e']) recent.set(key, 2)
  expect(['a', 'b', 'c', 'd', 'e'].map((key) => recent.get(key))).toEqual([...Array(4).fill(undefined), 2])
})
