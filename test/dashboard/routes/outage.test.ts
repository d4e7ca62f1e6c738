import { describe, expect, test } from 'vitest'
import type { Limiter } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { browse, limiterOf, rowsIn } from './browse.ts'

const database = useDatabase()

const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })

describe('what one limit cannot read', () => {
  test.each<[string, () => Limiter]>([
    [
      'an error of limiterOf',
      () => {
        throw new Error('no plan of user:1')
      },
    ],
    ['no plan', () => undefined as unknown as Limiter],
  ])('does not hide the others: %s', async (_, planOf) => {
    const [{ ratelimit }, { ratelimit: calm }] = [limiterOf(database.db), limiterOf(database.db)]
    for (const each of [ratelimit, calm]) await each.limit('user:1')
    const { get, open } = browse({ broken: { ratelimit, limiterOf: planOf }, calm })
    const pages = [await get(), await open('calm', 'user:1')]
    for (const { status, text } of pages) {
      expect(status).toBe(200)
      expect(text).toContain('INVALID_OPTION')
      expect(text).not.toContain('no plan of')
    }
    expect(rowsIn(pages[0]?.text ?? '').map(([first]) => first?.split(' ')[0])).toEqual(['broken', 'calm'])
    expect(rowsIn(pages[1]?.text ?? '').map((row) => row.slice(0, 2))).toEqual([
      ['calm 5 in 1 h', '20 % 1'],
      ['broken', 'not known'],
    ])
  })

  test('does not hide the others: a key that is too long for one, an outage and a missing table', async () => {
    const { ratelimit: hashed } = limiterOf(database.db, { hashKeys: true })
    const { ratelimit: plain } = limiterOf(database.db)
    const lost = limiterOf(
      watch(database.db, () => {
        throw away
      }).db,
    ).ratelimit
    const missing = limiterOf(
      watch(database.db, () => {
        throw Object.assign(new Error('no table'), { code: '42P01' })
      }).db,
    ).ratelimit
    const key = 'a'.repeat(2_000)
    await hashed.limit(key)
    const { open } = browse({ hashed, plain, lost, missing })
    expect(rowsIn((await open('hashed', key)).text).map((row) => row.slice(0, 2))).toEqual([
      ['hashed 5 in 1 h', '20 % 1'],
      ['plain', 'not known'],
      ['lost', 'not known'],
      ['missing', 'not known'],
    ])
    for (const code of ['UNREACHABLE', 'MISSING_TABLE'])
      expect((await open('plain', 'user:1')).text).toContain(code)
  })
})

describe('a database that does not answer', () => {
  function hanging() {
    const state = { hangs: true }
    const { db } = watch(database.db, () => state.hangs && new Promise(() => {}))
    return { state, ratelimit: limiterOf(db, { use: undefined, timeout: '50ms' }).ratelimit }
  }

  test('has an error after the timeout of the limit, and does not hide the others', async () => {
    const { ratelimit: hangs } = hanging()
    const { get, open } = browse({ hangs, calm: limiterOf(database.db).ratelimit })
    expect(await get('?limit=hangs')).toMatchObject({ status: 503, text: expect.stringContaining('TIMEOUT') })
    for (const { status, text } of [await get(), await open('calm', 'user:1')]) {
      expect(status).toBe(200)
      expect(text).toContain('TIMEOUT')
    }
  })

  test('is not counted by the page, so calls are not refused because of it', async () => {
    const { ratelimit, state } = hanging()
    const { get } = browse({ hangs: ratelimit })
    for (let i = 0; i < 6; i++) await get('?limit=hangs')
    state.hangs = false
    expect(await ratelimit.limit('user:1')).toMatchObject({ success: true })
  })
})
