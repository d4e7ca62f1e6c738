import { readFile } from 'node:fs/promises'
import { beforeAll, expect, test } from 'vitest'
import { tableSql } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { errorOf } from '../../support/errors.ts'
import { completed, FEATURES, REFUSED_PAIRS, scenarios } from '../../support/pairs/cover.ts'
import { OPTIONS, TABLES } from '../../support/pairs/features.ts'
import { OBJECTS, TAKEN } from '../../support/pairs/objects.ts'
import { featureOf, REFUSED } from '../../support/pairs/refused.ts'
import { chargeIn, run, scenarioOf } from '../../support/pairs/scenario.ts'
import { isGate } from '../../support/runs.ts'
import { watch } from '../../support/watch.ts'

// Features combine unless the combination means nothing. Every pair is run, or is refused and says why.

const database = useDatabase()
beforeAll(() => database.script(tableSql(TABLES).join(';')))

/** Those that have most of the pairs come first. */
const all = scenarios()
const some = isGate ? all : all.slice(0, all.length / 3)
const SCENARIOS = some.map((features) => [features.join(' + '), features] as const)
test.each<(typeof SCENARIOS)[number]>(SCENARIOS)('%s', (_, features) => run(features, database))

const WITH_REASON = REFUSED.flatMap(({ these, others, because }) =>
  these.flatMap((one) => others.map((other) => [featureOf(one), featureOf(other), because] as const)),
)

/** A class that has no such method refuses it by its type. */
const FORMS = / is not a function$|^There is no option | needs | cannot be combined with /

test.each(WITH_REASON)('%s with %s is refused before any SQL', async (one, other, because) => {
  const { db, statements } = watch(database.db)
  const call = async () => {
    const on = scenarioOf(completed([one, other]), db)
    await (on.act ? on.act(on, 0) : chargeIn(on, 0))
  }
  const error = await call().catch((reason: Error & { code?: unknown }) => reason)
  const message = String(error?.message)
  expect(message).toMatch(FORMS)
  if (!message.endsWith(' is not a function')) expect(error).toMatchObject({ code: 'INVALID_OPTION' })
  if (message.includes('cannot be combined')) expect(message).toContain(because.replaceAll('`', ''))
  expect(statements).toEqual([])
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
