import { expect, test } from 'vitest'
import { Places } from '../../src/runtime/places.ts'

// A place is freed once: only if it is taken, and only for a statement that no caller waits for any more.
//
// This needs the class: that a place is freed twice shows only after several statements that never end.

function onePlace() {
  const places = new Places(1, () => {})
  const first = {}
  places.take(first)
  return { places, first }
}

test('a statement that has ended frees no place of another', () => {
  const { places, first } = onePlace()
  places.abandon(first)
  places.leave(first)
  places.take({})
  expect(places.hasRoom()).toBe(false)
})

test('a statement that is abandoned after its end frees no place of another', () => {
  const { places, first } = onePlace()
  places.leave(first)
  places.abandon(first)
  places.take({})
  expect(places.hasRoom()).toBe(false)
})
