import { expect, test } from 'vitest'
import { type Turn, Turns } from '../../src/several/turns.ts'

// Transactions of several limits: a few at once, and one after the other for a row.

async function hasCome(turn: Turn): Promise<boolean> {
  return Promise.race([
    turn.comes.then(() => true),
    new Promise<false>((resolve) => setImmediate(resolve, false)),
  ])
}

test('calls for one row come one after the other, in their order', async () => {
  const turns = new Turns()
  const [first, second, third] = [['a'], ['b', 'a'], ['a', 'c']].map((rows) => turns.enter(rows)) as [
    Turn,
    Turn,
    Turn,
  ]
  expect([first, second, third].map(({ isBehind }) => isBehind)).toEqual([false, true, true])
  expect(await hasCome(first)).toBe(true)
  expect(await hasCome(second)).toBe(false)
  first.leave()
  expect(await hasCome(second)).toBe(true)
  expect(await hasCome(third)).toBe(false)
  second.leave()
  expect(await hasCome(third)).toBe(true)
})

test('four are under way at once, and the next when one has ended', async () => {
  const turns = new Turns()
  const all = ['a', 'b', 'c', 'd', 'e'].map((row) => turns.enter([row]))
  const last = all[4] as Turn
  expect(last.isBehind).toBe(false)
  expect(await hasCome(last)).toBe(false)
  all[2]?.leave()
  expect(await hasCome(last)).toBe(true)
})

test('those behind one that gives up go on, whether it waited or was under way', async () => {
  const turns = new Turns()
  const [first, second, third] = [1, 2, 3].map(() => turns.enter(['a'])) as [Turn, Turn, Turn]
  second.giveUp()
  expect(await hasCome(third)).toBe(false)
  first.giveUp()
  expect(await hasCome(third)).toBe(true)
  expect(await hasCome(second)).toBe(false)
  first.leave()
  third.leave()
  expect(await hasCome(turns.enter(['a']))).toBe(true)
})

test('1,000 wait for one row at most, which leaves room for others', () => {
  const turns = new Turns()
  for (let i = 0; i < 1_000; i++) turns.enter(['a'])
  const refused = expect.objectContaining({ code: 'OVERLOADED', contended: true })
  expect(() => turns.enter(['b', 'a'])).toThrow(refused)
  expect(turns.enter(['b']).isBehind).toBe(false)
})

test('and 10,000 in all; those that give up make room', () => {
  const turns = new Turns()
  const all = Array.from({ length: 10_004 }, (_, i) => turns.enter([`row ${i % 20}`]))
  expect(() => turns.enter(['other'])).toThrow(
    expect.objectContaining({ code: 'OVERLOADED', contended: false }),
  )
  all.at(-1)?.giveUp()
  turns.enter(['other'])
})
