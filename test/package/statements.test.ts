import { format } from 'sql-formatter'
import { describe, expect, test } from 'vitest'
import { rateLimitDurable, rateLimitEphemeral } from '../../schema/index.ts'
import type { AnyAlgorithm } from '../../src/algorithms/algorithm.ts'
import type { Statement } from '../../src/database/statement.ts'
import { Ratelimit } from '../../src/index.ts'
import * as statements from '../../src/statements/statements.ts'

const table = rateLimitEphemeral
const limiters = {
  'token-bucket': Ratelimit.tokenBucket(5, '10s', 20),
  'token-bucket-continuous': Ratelimit.tokenBucket(5, '10s', 20, { refill: 'continuous' }),
  'token-bucket-partly-filled': Ratelimit.tokenBucket(5, '10s', 20, { initialTokens: 1 }),
  'fixed-window': Ratelimit.fixedWindow(5, '10s'),
  'sliding-window': Ratelimit.slidingWindow(5, '10s'),
  'calendar-window': Ratelimit.calendarWindow(5, 'month'),
}

/** What a check outside a transaction sends, by the clock of the database, when it believes to know the size of the table. */
const plain = { table, injectedClock: false, commit: 'as the session', guarded: false } as const
const take = { intent: 'take', waits: false } as const

function oneAndMake(algorithm: AnyAlgorithm): [string, Statement][] {
  return [
    ['take-one', statements.takeOne({ ...plain, ...take, algorithm })],
    ['make', statements.make({ ...plain, ...take, algorithm })],
  ]
}

function everyStatement({ algorithm }: { readonly algorithm: AnyAlgorithm }): [string, Statement][] {
  const source = { ...plain, algorithm }
  const durable = { ...source, table: rateLimitDurable, commit: 'async' } as const
  return [
    ...oneAndMake(algorithm),
    ['take-one-waiting', statements.takeOne({ ...source, ...take, waits: true })],
    ['take-one-guarded', statements.takeOne({ ...source, ...take, guarded: true })],
    ['take-one-durable', statements.takeOne({ ...durable, ...take })],
    ['take-many', statements.takeMany(source)],
    ['take-many-guarded', statements.takeMany({ ...source, guarded: true })],
    ['take-many-by-an-injected-clock', statements.takeMany({ ...source, injectedClock: true })],
    ['take-many-flushed', statements.takeMany({ ...durable, commit: 'flushed' })],
    ['make-waiting', statements.make({ ...source, ...take, waits: true })],
    ['make-guarded', statements.make({ ...source, ...take, guarded: true })],
    ['adjust-one', statements.takeOne({ ...source, intent: 'adjust', waits: false })],
    ['adjust-make', statements.make({ ...source, intent: 'adjust', waits: false })],
    ['look', statements.look(source)],
    ['look-guarded', statements.look({ ...source, guarded: true })],
    ['usage', statements.usage(table, algorithm, false)],
  ]
}

const ofTable: [string, Statement][] = [
  ['remove', statements.remove(table)],
  ['lock', statements.lock(table)],
  ['unmake', statements.unmake(table)],
  ['sweep', statements.sweep(table)],
]

const { 'token-bucket': bucket, ...others } = limiters
const all: [string, Statement][] = [
  ...ofTable,
  ...everyStatement(bucket).map(([name, each]): [string, Statement] => [`token-bucket/${name}`, each]),
  ...Object.entries(others).flatMap(([limiter, { algorithm }]) =>
    oneAndMake(algorithm).map(([name, each]): [string, Statement] => [`${limiter}/${name}`, each]),
  ),
]

/** The statement as a person would write it, and the names of its parameters. */
function printed({ sql, names }: Statement): string {
  const parameters = names.map((name, i) => `-- $${i + 1}: ${name}\n`).join('')
  return `${parameters}${format(sql, { language: 'postgresql', keywordCase: 'lower', expressionWidth: 100 })}\n`
}

describe('every statement is as it was reviewed', () => {
  test.each(all)('%s', async (name, statement) => {
    await expect(printed(statement)).toMatchFileSnapshot(`../statements/snapshots/${name}.sql`)
  })
})

test.each(all)('each parameter of %s is used, and none is without a name', (_, { sql, names }) => {
  const used = new Set([...sql.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number)))
  expect([...used].toSorted((one, other) => one - other)).toEqual(names.map((_, i) => i + 1))
})
