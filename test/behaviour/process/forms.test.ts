import { expect, test } from 'vitest'
import { calendarWindow } from '../../../src/calendar/index.ts'
import { type Database, Ratelimit, rateLimitTables } from '../../../src/index.ts'
import { watch } from '../../support/watch.ts'

// The statements of a table are kept by their names. A call must not get the statement of another kind of call.

/** It has no rows. */
const empty: Database = {
  transaction: () => Promise.reject(new Error('no transaction')),
  execute: async () => ({ rows: [] }),
  refreshMaterializedView: undefined,
}

const calls: Readonly<Record<string, (ratelimit: Ratelimit, key: string) => Promise<unknown>>> = {
  'a call': (ratelimit, key) => ratelimit.limit(key),
  'a call for what there is': (ratelimit, key) => ratelimit.limit(key, { rate: 2, atLeast: 1 }),
  'an estimate': (ratelimit, key) => ratelimit.reserve(key),
  'an estimate of what there is': (ratelimit, key) => ratelimit.reserve(key, { rate: 2, atLeast: 1 }),
  'a charge into debt': (ratelimit, key) => ratelimit.limit(key, { force: true }),
  'a look': (ratelimit, key) => ratelimit.getRemaining(key),
}

/** The statements of each of these calls for the keys, one call after the other, on tables of their own. */
async function sentBy(names: readonly string[], keys: readonly string[]): Promise<string[][]> {
  const tables = rateLimitTables()
  const limiter = calendarWindow(5, 'month')
  const written: string[][] = []
  for (const name of names) {
    const { db, statements } = watch(empty)
    const ratelimit = new Ratelimit({ db, limiter, prefix: name, tables, cleanupProbability: 0 })
    // What needs a row ends in an error at last.
    await Promise.allSettled(keys.map((key) => calls[name]?.(ratelimit, key)))
    written.push([...new Set(statements)].toSorted())
  }
  return written
}

test.each([1, 2])(
  'each kind of call sends its own statements, whatever was sent before: %i keys',
  async (count) => {
    const names = Object.keys(calls)
    const keys = Array.from({ length: count }, (_, place) => `key ${place}`)
    const alone = (await Promise.all(names.map((name) => sentBy([name], keys)))).flat()
    expect(new Set(alone.map((texts) => texts.join())).size).toBe(names.length)
    for (const [place, first] of names.entries()) {
      expect(await sentBy([first, ...names], keys)).toEqual([alone[place], ...alone])
    }
  },
)
