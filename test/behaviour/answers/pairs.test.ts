import { readFile } from 'node:fs/promises'
import { beforeAll, expect, test } from 'vitest'
import { tableSql } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { completed, FEATURES, REFUSED_PAIRS, scenarios } from '../../support/pairs/cover.ts'
import { LIMITS, OPTIONS, PREPAID, TABLES } from '../../support/pairs/features.ts'
import { OBJECTS, TAKEN } from '../../support/pairs/objects.ts'
import { featureOf, REFUSED } from '../../support/pairs/refused.ts'
import { chargeIn, run, scenarioOf } from '../../support/pairs/scenario.ts'
import { watch } from '../../support/watch.ts'

// Features combine unless the combination means nothing. Every pair is run, or is refused and says why.

const database = useDatabase()
beforeAll(() => database.script(tableSql(TABLES).join(';')))

const SCENARIOS = scenarios().map((features) => [features.join(' + '), features] as const)
test.each<(typeof SCENARIOS)[number]>(SCENARIOS)('%s', (_, features) => run(features, database))

test.each(REFUSED_PAIRS)('%s with %s is refused before any SQL', async (...pair) => {
  const { db, statements } = watch(database.db)
  const call = async () => {
    const on = scenarioOf(completed(pair), db)
    await (on.act ? on.act(on, 0) : chargeIn(on, 0))
  }
  const error = await call().catch((reason: Error & { code?: unknown }) => reason)
  // A class that has no such method refuses it by its type.
  const isRefused = error && (error.code === 'INVALID_OPTION' || /is not a function$/.test(error.message))
  expect(isRefused, String(error)).toBe(true)
  expect(statements).toEqual([])
})

/** What a layer of `use` cannot be combined with. It says so itself. */
const BY_LAYERS = REFUSED.flatMap(({ these, others, because }) =>
  these.flatMap((one) => others.map((other) => [featureOf(one), featureOf(other), because] as const)),
).filter(([...pair]) => {
  const isOfConfig = (name: string) => name in LIMITS || name in PREPAID || name in OPTIONS
  return pair.slice(0, 2).every(isOfConfig) && pair.some((name) => 'use' in (OPTIONS[name]?.([]) ?? {}))
})

test.each(BY_LAYERS)('the error of %s with %s says why', async (one, other, because) => {
  const { message } = await errorOf(async () => scenarioOf(completed([one, other]), database.db))
  expect(message).toContain(`cannot be combined with`)
  expect(message).toContain(because.replaceAll('`', ''))
})

/** An object with these options. */
function configOf(name: string, options: readonly string[]) {
  const own = { db: database.db, prefix: `${name} ${options}` }
  return Object.assign(own, ...options.map((option) => OPTIONS[option]?.([])))
}

const BOTH = Object.entries(OBJECTS).flatMap(([name, calls]) =>
  [TAKEN, ...TAKEN.map((option) => [option])].map(
    (options) => [name, options.join(' + '), options, calls] as const,
  ),
)
test.each(BOTH)('%s with %s', async (name, _, options, calls) => {
  await calls(configOf(name, options), undefined)
  const config = configOf(name, options)
  config.prefix += ' in a transaction'
  await database.db.transaction((tx) => calls(config, tx))
})

/** `coalesce` is for a semaphore too. */
const NOT_TAKEN = Object.keys(OPTIONS).filter((option) => ![...TAKEN, 'Quota', 'coalesce'].includes(option))
test.each(Object.entries(OBJECTS))('%s refuses all other options', async (name, calls) => {
  for (const option of NOT_TAKEN) {
    const refused = errorOf(async () => calls(configOf(name, [option]), undefined))
    expect(await refused, option).toMatchObject({ code: 'INVALID_OPTION' })
  }
})

test('docs/options.md names the options of Members and Semaphore', async () => {
  const page = await readFile('docs/options.md', 'utf8')
  const sentence = /^`Members` and `Semaphore` take (.+?) in any combination/ms.exec(page)?.[1] ?? ''
  expect([...sentence.matchAll(/`(\w+)`/g)].map((match) => match[1])).toEqual(TAKEN)
})

test('what is refused are features', () => {
  expect(REFUSED_PAIRS.flat().filter((each) => !FEATURES.includes(each))).toEqual([])
})

test('docs/options.md has the table of what is refused', async () => {
  const page = await readFile('docs/options.md', 'utf8')
  const list = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(', ')
  const rows = REFUSED.map(({ these, others, because }) => `${list(these)}|${list(others)}|${because}`)
  const written = [...page.matchAll(/^\| *(.+?) *\| *(.+?) *\| *(.+?) *\|$/gm)].map((cells) =>
    cells.slice(1).join('|'),
  )
  expect(written.slice(2)).toEqual(rows)
})
