import { expect, test } from 'vitest'
import { balance } from '../../../src/credits/balance.ts'
import { SQL_NAMES, STATE_COLUMNS } from '../../../src/kernel/sql/columns.ts'
import { useDatabase } from '../../support/databases.ts'
import { oneOfEachKind, quotaOn } from '../../support/ten.ts'

// Which columns of a row are filled says whose row it is, whatever has filled them.

const database = useDatabase()
const VALUES = { count: 3, prevCount: 3, windowStart: 'now', tokens: 2, lastRefill: 'now' } as const

/** All sets of columns. */
const filled = Array.from({ length: 2 ** STATE_COLUMNS.length }, (_, bits) =>
  STATE_COLUMNS.filter((_column, place) => bits & (2 ** place)),
)

test.each([...oneOfEachKind, { name: 'balance', limiter: balance() }])(
  'an algorithm reads the rows that have exactly its own columns: $name',
  async ({ limiter }) => {
    if (!limiter.stored) throw new Error('there is no row')
    const own: string[][] = []
    for (const columns of filled) {
      const { quota, clock, prefix } = quotaOn(database, limiter)
      const periods = limiter.periodAt?.(clock.ms)
      const now = new Date(periods?.start ?? clock.ms).toISOString()
      const values = STATE_COLUMNS.map((column) => {
        if (!columns.includes(column)) return null
        return VALUES[column] === 'now' ? now : VALUES[column]
      })
      await database.rows(
        `insert into rate_limit_ephemeral (prefix, key, ${STATE_COLUMNS.map((each) => SQL_NAMES[each]).join()}, expires_at)
        values ($1, 'key', $2, $3, $4, $5, $6, $7)`,
        [prefix, ...values, new Date(clock.ms + 1e9).toISOString()],
      )
      const [row, fresh] = [await quota.getRemaining('key'), await quota.getRemaining('new')]
      const charged = (await quota.limit('key', { rate: 0 })).remaining
      expect(charged).toBe(row.remaining)
      if (row.used !== fresh.used) own.push(columns.toSorted())
    }
    const { columns, optional = [] } = limiter.algorithm
    const all = [columns, ...optional.map((each) => [...columns, each])]
    expect(own.toSorted()).toEqual(all.map((each) => each.toSorted()).toSorted())
  },
)
