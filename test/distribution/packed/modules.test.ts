import { copyFile, readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/pglite'
import type { Quota } from 'drizzle-ratelimit/quota'
import { describe, expect, inject, test } from 'vitest'
import { emptyDatabase } from '../../support/databases.ts'
import { ENTRIES } from '../../support/entries.ts'
import { runScript } from './kit.ts'

const consumer = inject('consumer')

type Package = typeof import('drizzle-ratelimit')
type Calendar = typeof import('drizzle-ratelimit/calendar')
type Functions = typeof import('drizzle-ratelimit/quota')

const required = createRequire(join(consumer, 'index.js'))
const imported = (entry: string) =>
  import(pathToFileURL(required.resolve(entry)).href.replace('/dist/cjs/', '/dist/'))

test.each([...ENTRIES.keys()])('%s has the same names by import and by require', async (entry) => {
  const names = Object.keys(required(entry))
  expect(names.length).toBeGreaterThan(0)
  expect(Object.keys(await imported(entry)).toSorted()).toEqual(names.toSorted())
})

test.each([...ENTRIES])('%s is found in the same way as the others', async (entry, source) => {
  const { exports } = JSON.parse(await readFile('package.json', 'utf8'))
  const file = source.replace(/\.ts$/, '')
  const targets = (folder: string) => ({ types: `${folder}/${file}.d.ts`, default: `${folder}/${file}.js` })
  expect(exports[entry.replace('drizzle-ratelimit', '.')]).toEqual({
    import: targets('./dist'),
    require: targets('./dist/cjs'),
  })
})

test('Jest runs it in a CommonJS project', async () => {
  await writeFile(join(consumer, 'package.json'), '{ "name": "consumer", "private": true }')
  await copyFile('test/distribution/packed/consumer/limit.test.cjs', join(consumer, 'limit.test.js'))
  const database = await emptyDatabase()
  const options = ['--rootDir', consumer, '--testTimeout', '120000']
  const said = await runScript('jest/bin/jest.js', options, { DATABASE_URL: database.url })
  await database.close()
  expect(said).toContain('1 passed, 1 total')
})

describe('its ES and its CommonJS modules in one process', async () => {
  const esm: Package & Calendar & Functions = {
    ...(await imported('drizzle-ratelimit')),
    ...(await imported('drizzle-ratelimit/calendar')),
    ...(await imported('drizzle-ratelimit/quota')),
  }
  const cjs: Package & Calendar & Functions = {
    ...required('drizzle-ratelimit'),
    ...required('drizzle-ratelimit/calendar'),
    ...required('drizzle-ratelimit/quota'),
  }
  const client = await PGlite.create()
  await client.exec(esm.tableSql().join(';'))
  const db = drizzle({ client })
  const kinds = [
    ['ES', esm, cjs],
    ['CommonJS', cjs, esm],
  ] as const

  test.each(kinds)(
    'the limits and tables of the other are those of %s',
    async (prefix, { Ratelimit }, other) => {
      for (const limiter of [other.Ratelimit.slidingWindow(5, '1m'), other.calendarWindow(5, 'month')]) {
        const ratelimit = new Ratelimit({ db, limiter, prefix, tables: other.rateLimitTables() })
        await ratelimit.resetUsedTokens('key')
        expect(await ratelimit.limit('key', { rate: 2 })).toMatchObject({ success: true, remaining: 3 })
        const same = new other.Ratelimit({ db, limiter, prefix })
        expect(await same.limit('key')).toMatchObject({ success: true, remaining: 2 })
      }
    },
  )

  test.each(kinds)(
    'an error of %s is a RatelimitError of the other',
    async (prefix, { Ratelimit }, other) => {
      const ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix })
      const error = await ratelimit.limit('').catch((error) => error)
      expect(error instanceof other.RatelimitError && error.code).toBe('INVALID_KEY')
      expect(new Error('INVALID_KEY')).not.toBeInstanceOf(other.RatelimitError)
    },
  )

  test.each(kinds)('functions of %s take limiters of the other', async (kind, own, other) => {
    const limited = (from: Functions, prefix: string) =>
      new from.Quota({ db, limiter: own.Ratelimit.fixedWindow(5, '1m'), prefix: `${kind} ${prefix}` })
    const sources = [limited(other, 'other'), limited(own, 'own')].map((each) => ({
      ratelimit: each as Quota,
      key: 'key',
    }))
    const [{ ratelimit }] = sources as [(typeof sources)[0]]
    const used = async () =>
      Promise.all(sources.map(async (each) => (await each.ratelimit.getRemaining('key')).used))

    expect(await own.limitAll(sources)).toMatchObject({ success: true })
    expect(await used()).toEqual([1, 1])
    // In memory, and by a name.
    for (const name of [{}, { id: 'job', expires: '1m' } as const]) {
      const reserved = await own.reserveAll(sources, name)
      if (reserved.success) await reserved.commit([0, 1])
    }
    expect(await used()).toEqual([1, 3])
    const together = { rate: 5, id: 'work', expires: '1m' } as const
    expect(await own.spend(sources, together)).toMatchObject({ granted: [4, 1] })
    expect(await own.settle(sources, 'work', { actual: 2 })).toMatchObject({ granted: [2, 0] })
    expect(await used()).toEqual([3, 3])
    expect(await ratelimit.reserve('key', { rate: 2, id: 'lost', expires: '1ms' })).toMatchObject({
      success: true,
    })
    await expect
      .poll(() => db.transaction((tx) => own.settleExpired(ratelimit, { tx, as: 'release' })))
      .toMatchObject([{ id: 'lost', returned: 2 }])
    expect(await used()).toEqual([3, 3])
  })
})
