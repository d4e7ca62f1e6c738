import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { Ratelimit, RatelimitError } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { headersOf } from 'drizzle-ratelimit/http'
import { lockout } from 'drizzle-ratelimit/lockout'
import { Quota } from 'drizzle-ratelimit/quota'
import { expect, test } from 'vitest'
import { db } from '../../support/docs-app.ts'
import { ENTRIES } from '../../support/entries.ts'
import { watch } from '../../support/watch.ts'

// What CONTEXT.md says, line by line. tools/docs.test.ts compiles its block.

const page = await readFile('CONTEXT.md', 'utf8')

test('each object is exported by the entry that is named, and each limit is there', async () => {
  const objects = [...page.matchAll(/^\| `(\w+)` +\| `([\w/-]+)`/gm)].map(([, name = '', entry = '']) => ({
    name,
    entry,
  }))
  expect(objects.map(({ name }) => name)).toEqual(['Ratelimit', 'Quota', 'Credits', 'Semaphore'])
  for (const { name, entry } of objects) {
    expect(ENTRIES.has(entry)).toBe(true)
    expect(await import(entry)).toHaveProperty(name)
  }
  const [, limits = ''] = /^Limits: (.*?)\n\n/ms.exec(page) ?? []
  const named = [...limits.matchAll(/`(?:Ratelimit)?\.?(\w+)\((.*?)\)`/g)]
  const { tokenBucket, slidingWindow, fixedWindow, gcra, unlimited } = Ratelimit
  const all = { tokenBucket, slidingWindow, fixedWindow, gcra, unlimited, calendarWindow, lockout }
  // What has to be given is named.
  const givenOf = (given = '') => given.split(', ').filter(Boolean).length
  expect(named.map(([, name, given]) => [name, givenOf(given)])).toEqual(
    Object.entries(all).map(([name, limit]) => [name, limit.length]),
  )
  expect(limits.match(/`\/\w+`/g)).toEqual(['`/calendar`', '`/lockout`'])
})

test('the setup is that of the README, which the tests of the package run', async () => {
  const [, setup = ''] = /Setup, once: `(.*?)`/s.exec(page) ?? []
  expect(setup).toMatch(/^npx drizzle-ratelimit init/)
  expect(await readFile('README.md', 'utf8')).toContain(`\n${setup}\n`)
})

test('the twelve calls run as they stand there', async () => {
  const [, block = ''] = /^```ts\n([\s\S]*?)^```/m.exec(page) ?? []
  await mkdir('node_modules/.cache', { recursive: true })
  const folder = await mkdtemp(resolve('node_modules/.cache/context-'))
  try {
    await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
    await writeFile(join(folder, 'calls.ts'), block)
    await db.$client.exec('create table jobs (name text not null)')
    const { twelveCalls } = await import(join(folder, 'calls.ts'))
    expect(block.match(/^ {2,4}(const .* = )?await /gm)).toHaveLength(14)
    // 12 in the transaction, 1 of another plan, 3 once.
    expect(await twelveCalls('org:1')).toMatchObject({ success: true, used: 16, limit: 50_000 })
  } finally {
    await rm(folder, { recursive: true })
  }
})

const MISTAKES: Readonly<Record<string, () => Promise<void>>> = {
  'A denial is no error.': async () => {
    const none = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(0, '1m'), prefix: 'context denied' })
    expect(await none.limit('key')).toMatchObject({ success: false })
  },
  'Without `tx` a charge stays when the work rolls back.': async () => {
    const quota = new Quota({ db, limiter: calendarWindow(10, 'month'), prefix: 'context rolled back' })
    const failing = (options: { readonly isJoined: boolean }) =>
      db.transaction(async (tx) => {
        if (options.isJoined) await quota.limit('key', { tx })
        tx.rollback()
      })
    await expect(failing({ isJoined: true })).rejects.toThrow()
    expect(await quota.getRemaining('key')).toMatchObject({ used: 0 })
    // PGlite has one connection, so the charge is made before the work.
    await quota.limit('key')
    await expect(failing({ isJoined: false })).rejects.toThrow()
    expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
  },
  'A new object for each request shares no statements.': async () => {
    const watched = watch(db)
    const limiter = Ratelimit.fixedWindow(100, '1m')
    const config = { db: watched.db, limiter, prefix: 'context shared', cleanupProbability: 0 }
    const kept = new Ratelimit(config)
    await kept.limit('key')
    const sent = async (limit: () => Ratelimit) => {
      const before = watched.statements.length
      await Promise.all(Array.from({ length: 10 }, () => limit().limit('key')))
      return watched.statements.length - before
    }
    expect(await sent(() => kept)).toBeLessThan(5)
    expect(await sent(() => new Ratelimit(config))).toBe(10)
  },
  '`retryAfter` is in milliseconds.': async () => {
    const hourly = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(1, '1h'), prefix: 'context hourly' })
    await hourly.limit('key')
    const answer = await hourly.limit('key')
    expect(answer.retryAfter).toBeGreaterThan(3_500_000)
    expect(Number(headersOf(answer, hourly)['Retry-After'])).toBeLessThanOrEqual(3600)
  },
  'A call that failed with `OUTCOME_UNKNOWN` may have charged.': async () => {
    const quota = new Quota({ db, limiter: calendarWindow(10, 'month'), prefix: 'context unknown' })
    const once = { id: 'event:7', for: '1d' } as const
    for (let tries = 0; tries < 3; tries++) await quota.limit('key', { once })
    expect(await quota.getRemaining('key')).toMatchObject({ used: 1 })
    expect(new RatelimitError('OUTCOME_UNKNOWN', '').code).toBe('OUTCOME_UNKNOWN')
  },
}

const mistakes = [...page.matchAll(/^- \*\*(.*?)\*\*/gm)].map(([, said = '']) => said)

test('each mistake has a test', () => {
  expect(mistakes).toEqual(Object.keys(MISTAKES))
})

test.each(mistakes)('%s', (said) => MISTAKES[said]?.())
