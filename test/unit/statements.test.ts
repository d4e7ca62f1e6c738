import { describe, expect, test } from 'vitest'
import { rateLimitDurable, rateLimitEphemeral } from '../../schema/index.ts'
import { balance } from '../../src/credits/balance.ts'
import { grantSumsStatement, grantsStatement, neededGrantsStatement } from '../../src/credits/sql/grants.ts'
import { takeGrantsStatement } from '../../src/credits/sql/take-grants.ts'
import { Ratelimit } from '../../src/index.ts'
import type { Statement } from '../../src/kernel/database/statement.ts'
import type { Rules } from '../../src/kernel/limits/algorithm.ts'
import { listStatement } from '../../src/kernel/sql/list.ts'
import type { ListRow } from '../../src/kernel/sql/list-row.ts'
import { listsStatement } from '../../src/kernel/sql/lists.ts'
import { lockStatement, removeEmptyStatement } from '../../src/kernel/sql/lock.ts'
import { lookStatement } from '../../src/kernel/sql/look.ts'
import { makeStatement } from '../../src/kernel/sql/make.ts'
import { removeStatement, sweepStatement } from '../../src/kernel/sql/remove.ts'
import { takeManyStatement, takeOneStatement } from '../../src/kernel/sql/take.ts'
import { closeStatement, windowsStatement } from '../../src/quota/sql/close.ts'
import { usageStatement } from '../../src/reports/sql/usage.ts'
import { allExamples } from '../support/limits.ts'
import { printed, usedNames } from '../support/statement-text.ts'
import { stored } from '../support/stored.ts'

const table = rateLimitEphemeral
/**
 * What a check outside a transaction sends, by the clock of the database, when it believes to know the size of
 * the table.
 */
const plain = { table, injectedClock: false, commit: 'as the session', guarded: false } as const
const take = { action: 'take', takesLess: false, waits: false } as const

function oneAndMake(rules: Rules): [string, Statement][] {
  return [
    ['take-one', takeOneStatement({ ...plain, ...take, rules })],
    ['make', makeStatement({ ...plain, ...take, rules })],
  ]
}

/** What a reservation and its settling send, for an algorithm that keeps what is settled. */
function reserving(rules: Rules): [string, Statement][] {
  if (!rules.algorithm.settled) return []
  const source = { ...plain, ...take, rules }
  return [
    ['reserve-one', takeOneStatement({ ...source, action: 'reserve' })],
    ['settle-one', takeOneStatement({ ...source, action: 'adjust' })],
  ]
}

function everyStatement(rules: Rules): [string, Statement][] {
  const source = { ...plain, ...take, rules }
  const durable = { ...source, table: rateLimitDurable, commit: 'async' } as const
  return [
    ...oneAndMake(rules),
    ['take-one-waiting', takeOneStatement({ ...source, waits: true })],
    ['take-one-guarded', takeOneStatement({ ...source, guarded: true })],
    ['take-one-durable', takeOneStatement(durable)],
    ['take-many', takeManyStatement(source)],
    ['take-less', takeOneStatement({ ...source, takesLess: true })],
    ['take-less-many', takeManyStatement({ ...source, takesLess: true })],
    ['make-less', makeStatement({ ...source, takesLess: true })],
    ['take-many-guarded', takeManyStatement({ ...source, guarded: true })],
    ['take-many-by-an-injected-clock', takeManyStatement({ ...source, injectedClock: true })],
    ['take-many-flushed', takeManyStatement({ ...durable, commit: 'flushed' })],
    ['make-waiting', makeStatement({ ...source, waits: true })],
    ['make-guarded', makeStatement({ ...source, guarded: true })],
    ['adjust-one', takeOneStatement({ ...source, action: 'adjust', waits: false })],
    ['adjust-make', makeStatement({ ...source, action: 'adjust', waits: false })],
    ['look', lookStatement(source)],
    ['look-guarded', lookStatement({ ...source, guarded: true })],
    ['usage', usageStatement(table, rules)],
  ]
}

/** A list of two limits: a bucket in one table, and a window in the other. */
function lists(): [string, Statement][] {
  const flags = {
    refunds: false,
    asks: 'rate' as const,
    takesLess: false,
    isDry: false,
    isNeeded: true,
    insertsIfMissing: false,
    inTime: false,
  }
  const row = { injectedClock: false, does: 'take', ...flags } as const
  const [bucket, window] = [
    stored(Ratelimit.tokenBucket(20, '1s', 20)),
    stored(Ratelimit.fixedWindow(20, '1s')),
  ]
  const rows: ListRow[] = [
    { ...row, table: rateLimitDurable, rules: bucket },
    { ...row, table, rules: window },
  ]
  const source = { rows, groups: [], commit: 'as the session', guarded: false } as const
  const sharing = rows.map((each) => ({ ...each, asks: undefined }))
  const spent = { ...source, rows: sharing, groups: [[0, 1]] }
  const debt = { ...row, asks: undefined, table, rules: balance() }
  const owed = {
    ...source,
    rows: [
      { ...debt, pays: 'debt' as const },
      ...sharing.map((each) => ({ ...each, pays: 'available after debt' as const })),
    ],
    groups: [[0, 1, 2]],
  }
  const rest = {
    ...source,
    rows: [...sharing, { ...debt, pays: 'rest as debt' as const }],
    groups: [[0, 1, 2]],
  }
  return [
    ['list', listStatement({ ...source, waits: false })],
    ['list-waiting', listStatement({ ...source, waits: true })],
    ['list-sharing', listStatement({ ...spent, waits: false })],
    ['list-paying-a-debt', listStatement({ ...owed, waits: false })],
    ['list-into-debt', listStatement({ ...rest, waits: false })],
    ['lists', listsStatement({ ...source, isCommon: [false, false] })],
    ['lists-with-a-common-row', listsStatement({ ...source, isCommon: [true, false] })],
  ]
}

const ofTable: [string, Statement][] = [
  ...lists(),
  ['grants', grantsStatement({ table, injectedClock: false, guarded: false })],
  ['grants-guarded', grantsStatement({ table, injectedClock: true, guarded: true })],
  ['needed-grants', neededGrantsStatement({ table, injectedClock: false, guarded: false })],
  ['grant-sums', grantSumsStatement({ table, injectedClock: false, guarded: false })],
  ['take-grants', takeGrantsStatement({ ...plain, waits: false, isMany: true, givesBack: false })],
  [
    'take-grants-waiting',
    takeGrantsStatement({ ...plain, guarded: true, waits: true, isMany: false, givesBack: true }),
  ],
  ['balance', takeOneStatement({ ...plain, ...take, rules: balance() })],
  ['remove', removeStatement(table)],
  ['lock', lockStatement([table], 'as the session', true)],
  ['lock-flushed', lockStatement([table, rateLimitDurable], 'flushed', true)],
  ['make-for-lists', lockStatement([table, rateLimitDurable], 'async', false)],
  ['remove-empty', removeEmptyStatement(table)],
  ['sweep', sweepStatement(table, false)],
  ['sweep-keeping', sweepStatement(table, true)],
  ['windows', windowsStatement(table, false)],
  ['close', closeStatement(table)],
]

/**
 * Each algorithm has its folder. The first one has every statement, the others those that hold their
 * arithmetic.
 */
const ofAlgorithms = allExamples.flatMap(({ name, of }, place) => {
  const { limiter } = of(20, '1s')
  const folder = name.replaceAll(/\W+/g, '-')
  const those = place === 0 ? everyStatement(limiter) : [...oneAndMake(limiter), ...reserving(limiter)]
  return those.map(([file, each]): [string, Statement] => [`${folder}/${file}`, each])
})
const all: [string, Statement][] = [...ofTable, ...ofAlgorithms]

/** One of each kind, for reviewers to read. What the others must do is tested by what they do. */
const REVIEWED = [
  ...['take-one', 'take-many', 'make', 'look'].map((name) => `token-bucket/${name}`),
  ...[
    'calendar-window/settle-one',
    'list',
    'lists',
    'lock',
    'sweep',
    'close',
    'grants',
    'needed-grants',
    'grant-sums',
    'take-grants',
    'balance',
  ],
]

describe('the SQL that reviewers have read has not changed', () => {
  test.each(REVIEWED)('%s', async (name) => {
    const [, statement] = all.find(([each]) => each === name) ?? expect.fail()
    await expect(printed(statement)).toMatchFileSnapshot(`./snapshots/${name}.sql`)
  })
})

test.each(all)('each parameter of %s has a name and is used', (_, statement) => {
  expect(usedNames(statement)).toEqual(statement.names)
})
