import { afterEach, expect, test } from 'vitest'
import { functionAround, functionsIn, noting } from '../../mutants/entered.ts'
import { placesIn } from '../../mutants/walk.ts'

const before = globalThis.entered

afterEach(() => {
  globalThis.entered = before
})

const SOURCE = `
const double = (n) => n * 2
const pair = (n) => ({ n, twice: double(n) })
function never() {
  return 1
}
class Counter {
  count = 0
  add(n) {
    if (n > 0) this.count += n
    return [n].map((each) => { return each + this.count })
  }
}
const made = [pair(3), new Counter().add(2)]
`

const run = (source: string): unknown => new Function(`${source}; return made`)()

test('a source with notes gives what it gives without, and names the functions that it has entered', () => {
  const entered = new Set<string>()
  globalThis.entered = entered
  const noted = noting('src/x.ts', SOURCE)

  expect(run(noted)).toEqual(run(SOURCE))
  const names = ['double', 'pair', 'Counter.add', 'Counter.add #2']
  expect([...entered].toSorted()).toEqual(names.map((name) => `src/x.ts:${name}`).toSorted())
  expect(noted.split('\n')).toHaveLength(SOURCE.split('\n').length)
})

test('a mistake belongs to the innermost function around it', () => {
  const places = placesIn('src/x.ts', SOURCE)
  const functions = functionsIn('src/x.ts', places)
  const around = places.flatMap((place) =>
    place.node.type === 'Literal' ? [functionAround(place, functions)?.slice('src/x.ts:'.length)] : [],
  )

  expect(around).toEqual(['double', 'never', undefined, 'Counter.add', undefined, undefined])
})
