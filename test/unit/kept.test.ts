import { appendFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Kept } from '../../mutants/kept.ts'

let folder = ''

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'drizzle-ratelimit-kept-'))
})

afterEach(() => rmSync(folder, { recursive: true }))

test('what a run has set and not deleted is there in the next run', () => {
  const file = join(folder, 'new/kept.jsonl')
  const before = new Kept<number>(file)
  before.set('a', 1)
  before.set('b', 2)
  before.set('a', 3)
  before.set('c', 4)
  before.delete('c')
  before.delete('d')

  const expected = [
    ['a', 3],
    ['b', 2],
  ]
  expect([...before.values]).toEqual(expected)
  expect([...new Kept<number>(file).values]).toEqual(expected)
})

test('a line that was cut off does not count, and what follows it does', () => {
  const file = join(folder, 'kept.jsonl')
  new Kept<number>(file).set('a', 1)
  appendFileSync(file, '\n["b",')
  new Kept<number>(file).set('c', 3)

  expect([...new Kept<number>(file).values.keys()]).toEqual(['a', 'c'])
})
