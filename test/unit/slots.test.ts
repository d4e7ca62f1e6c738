import { expect, test } from 'vitest'
import { ConnectionSlots } from '../../src/kernel/queue/slots.ts'

// A slot is freed once: only if it is taken, and only for a statement that no caller waits for any more.
//
// This needs the class, because a slot that is freed twice shows only after several statements that never end.

function oneTaken() {
  const slots = new ConnectionSlots(1, () => {})
  const first = {}
  slots.take(first)
  return { slots, first }
}

test('a statement that has ended frees no slot of another', () => {
  const { slots, first } = oneTaken()
  slots.abandon(first)
  slots.leave(first)
  slots.take({})
  expect(slots.hasRoom()).toBe(false)
})

test('a statement that is abandoned after its end frees no slot of another', () => {
  const { slots, first } = oneTaken()
  slots.leave(first)
  slots.abandon(first)
  slots.take({})
  expect(slots.hasRoom()).toBe(false)
})
