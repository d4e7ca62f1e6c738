import { expect, test } from 'vitest'
import { KeptLists } from '../../src/kernel/lists/kept-lists.ts'

// Which statements of lists connections keep.
//
// This needs the class: a caller cannot see how many statements a connection has room for.

/** Sends lists of a kind often enough. Returns whether connections keep their statement then. */
function sendOften(lists: KeptLists, kind: string, rows: number): boolean {
  for (let sent = 0; sent < 10; sent++) lists.send(kind, rows)
  return lists.send(kind, rows).isKept
}

test('connections keep the statement of lists that are sent often', () => {
  const lists = new KeptLists()
  for (let sent = 0; sent < 10; sent++) expect(lists.send('kind', 2).isKept).toBe(false)
  expect(lists.send('kind', 2).isKept).toBe(true)
  expect(lists.send('kind', 2).isKept).toBe(true)
})

test('rare lists leave room for others', () => {
  const lists = new KeptLists()
  for (let kind = 0; kind < 500; kind++) expect(lists.send(`rare ${kind}`, 50).isKept).toBe(false)
  expect(sendOften(lists, 'often', 50)).toBe(true)
})

test('the kept lists have at most 128 rows together', () => {
  const lists = new KeptLists()
  for (let kind = 0; kind < 16; kind++) expect(sendOften(lists, String(kind), 8)).toBe(true)
  expect(sendOften(lists, 'one too many', 1)).toBe(false)
  expect(lists.send('0', 8).isKept).toBe(true)
})

test('a long list leaves room for a short one', () => {
  const lists = new KeptLists()
  for (let kind = 0; kind < 2; kind++) expect(sendOften(lists, String(kind), 50)).toBe(true)
  expect(sendOften(lists, 'long', 50)).toBe(false)
  expect(sendOften(lists, 'short', 6)).toBe(true)
})

test('at most 512 kinds are remembered, and kept ones are not forgotten', () => {
  const lists = new KeptLists()
  const first = lists.send('first', 1)
  sendOften(lists, 'kept', 1)
  const kept = lists.send('kept', 1)
  for (let kind = 0; kind < 510; kind++) lists.send(String(kind), 1)
  expect(lists.send('first', 1)).toBe(first)
  lists.send('one more', 1)
  expect(lists.send('first', 1)).not.toBe(first)
  expect(lists.send('kept', 1)).toBe(kept)
})
