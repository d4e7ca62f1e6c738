import { blocks, lockout } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import { block } from '../../../src/lockout/index.ts'
import { Quota, reserveAll } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { browse, limiterOf, newPrefix, rowsIn } from './browse.ts'

const database = useDatabase()
const NONE = Ratelimit.fixedWindow(0, '1h')

describe('the page of a limit', () => {
  test('lists the keys nearest to their limit, and what they have used and have left', async () => {
    const { ratelimit } = limiterOf(database.db, {
      limiter: Ratelimit.fixedWindow(100, '1h'),
      use: undefined,
    })
    await ratelimit.limit('some', { rate: 60 })
    await ratelimit.limit('near', { rate: 99 })
    await ratelimit.limit('all', { rate: 100 })
    const { text } = await browse({ api: ratelimit }).get('?limit=api')
    expect(rowsIn(text, 'id="keys"').map((row) => row.slice(0, 4))).toEqual([
      ['all', '100 % 100', '0', '100'],
      ['near', '99 % 99', '1', '100'],
      ['some', '60 % 60', '40', '100'],
    ])
    expect(rowsIn(text, 'id="keys"')[0]?.[4]).toMatch(/^in 60 min \d+ \w+ \d{4}, \d\d:\d\d:\d\d$/)
    for (const level of ['all', 'near', 'some']) expect(text).toContain(`class="meter ${level}"`)
    expect(text).toContain('1 of 3 keys that have used something have nothing left.')
  })

  test('lists the keys that were denied most, in some minutes, a day or a week', async () => {
    const { ratelimit, written } = limiterOf(database.db, { clock: new TestClock().now })
    for (let i = 0; i < 7; i++) await ratelimit.limit('user:1')
    for (let i = 0; i < 6; i++) await ratelimit.limit('user:2')
    await written()
    const { get } = browse({ api: ratelimit })
    for (const since of [
      '',
      '&since=now',
      '&since=hour',
      '&since=day',
      '&since=week',
      '&since=other',
      '&denied=9',
    ]) {
      const { text } = await get(`?limit=api${since}`)
      expect(rowsIn(text, 'id="denied"')).toEqual([
        ['user:1', '2'],
        ['user:2', '1'],
      ])
      expect(text).toContain('3 denials in the last 24 hours')
      expect(text.match(/<rect y=|<rect x=/g)).toHaveLength(60 + 24)
    }
  })

  test('lists whom it denies now before it lists whom it has denied, unless another time is chosen', async () => {
    const clock = new TestClock()
    const { ratelimit, written } = limiterOf(database.db, { clock: clock.now, limiter: NONE })
    const { get } = browse({ api: ratelimit })
    const denied = async (since = '') => {
      const { text } = await get(`?limit=api${since}`)
      return [
        /Keys denied in.*<strong>(.*?)</.exec(text)?.[1],
        ...rowsIn(text, 'id="denied"').map(([key]) => key),
      ]
    }
    await ratelimit.limit('user:1')
    await written()
    expect(await denied()).toEqual(['5 minutes', 'user:1'])
    clock.advance(5 * 60_000)
    expect(await denied()).toEqual(['60 minutes', 'user:1'])
    await ratelimit.limit('user:2')
    await written()
    expect(await denied()).toEqual(['5 minutes', 'user:2'])
    expect(await denied('&since=hour')).toEqual(['60 minutes', 'user:1', 'user:2'])
    clock.advance(60 * 60_000)
    expect(await denied()).toEqual(['24 hours', 'user:1', 'user:2'])
    clock.advance(24 * 60 * 60_000)
    expect(await denied()).toEqual(['7 days', 'user:1', 'user:2'])
  })

  test('says who is at the limit and what to do, if denials are not counted or nothing was used', async () => {
    const { ratelimit } = limiterOf(database.db, { use: undefined })
    const { get } = browse({ api: ratelimit })
    const { text } = await get('?limit=api')
    expect(text).toContain('No key has used anything yet.')
    expect(text).toContain('<code>use: [countDenials()]</code>')
    await ratelimit.limit('user:1', { rate: 5 })
    expect(rowsIn((await get('?limit=api')).text, 'id="keys"')[0]?.slice(0, 3)).toEqual([
      'user:1',
      '100 % 5',
      '0',
    ])
  })

  test('has pages of 50 keys, with how many there are', async () => {
    const { ratelimit } = limiterOf(database.db, { limiter: Ratelimit.fixedWindow(1000, '1h') })
    const keys = Array.from({ length: 120 }, (_, place) => `user:${String(place).padStart(3, '0')}`)
    await Promise.all(keys.map((key, place) => ratelimit.limit(key, { rate: 1000 - place })))
    const { get } = browse({ api: ratelimit })
    const [first, third, fourth] = await Promise.all([1, 3, 4].map((page) => get(`?limit=api&page=${page}`)))
    expect(first?.text).toContain('1 to 50 of 120')
    expect(rowsIn(first?.text ?? '', 'id="keys"')).toHaveLength(50)
    expect(rowsIn(third?.text ?? '', 'id="keys"').map(([key]) => key)).toEqual(keys.slice(100))
    expect(third?.text).toContain('101 to 120 of 120')
    expect(third?.text).not.toContain('>Next<')
    // A page beyond the end is the last one.
    expect(fourth?.text).toContain('101 to 120 of 120')
    expect(rowsIn(fourth?.text ?? '', 'id="keys"').map(([key]) => key)).toEqual(keys.slice(100))
  })

  test('finds keys by a part of them, and no address has it', async () => {
    const { ratelimit } = limiterOf(database.db)
    for (const key of ['user:ada', 'user:100%', 'org:ada', 'bob']) await ratelimit.limit(key)
    const { get, post } = browse({ api: ratelimit })
    await get('?limit=api')
    const found = async (key: string) => {
      const { location, status } = await post('?limit=api', { key, do: 'search' })
      expect(status).toBe(303)
      expect(location).not.toContain(encodeURIComponent(key))
      const { text } = await get(location)
      return { keys: rowsIn(text, 'id="keys"').map(([each]) => each), text }
    }
    expect((await found('ada')).keys).toEqual(['org:ada', 'user:ada'])
    expect((await found('%')).keys).toEqual(['user:100%'])
    expect((await found('nobody')).text).toContain('No key with <code>nobody</code> has used anything.')
  })

  test('finds keys that were denied by a part of them, also if they have no row', async () => {
    const clock = new TestClock()
    const { ratelimit, written } = limiterOf(database.db, { clock: clock.now, limiter: NONE })
    for (const key of ['user:ada', 'user:eve', 'org:eve', 'user:eve']) await ratelimit.limit(key)
    await written()
    clock.advance(60 * 60_000)
    await ratelimit.limit('user:ada')
    await written()
    const { get, post } = browse({ api: ratelimit })
    await get('?limit=api')
    const { location } = await post('?limit=api', { key: 'eve', do: 'search' })
    const { text } = await get(location)
    expect(rowsIn(text, 'id="denied"')).toEqual([
      ['user:eve', '2'],
      ['org:eve', '1'],
    ])
    expect(text).toContain('<strong>7 days</strong>')
    expect(text).not.toContain('<figure>')
    expect((await get(`${location}&since=now`)).text).toContain('No key was denied.')
    const none = await get((await post('?limit=api', { key: 'bob', do: 'search' })).location)
    expect(none.text).not.toContain('id="denied"')
  })

  test('finds hashed keys by a part of the hash, and says so', async () => {
    const { ratelimit, written } = limiterOf(database.db, {
      hashKeys: true,
      limiter: Ratelimit.fixedWindow(1, '1h'),
    })
    for (const key of ['ada', 'bob', 'eve', 'eve']) await ratelimit.limit(key)
    await written()
    const { get, post } = browse({ api: ratelimit })
    const list = await get('?limit=api')
    expect(list.text).toContain('A key, or a part of a hash')
    const [hash = ''] = rowsIn(list.text, 'id="keys"')[0] ?? []
    const search = async (key: string) =>
      (await get((await post('?limit=api', { key, do: 'search' })).location)).text
    expect(rowsIn(await search(hash.slice(5, 25)), 'id="keys"').map(([key]) => key)).toEqual([hash])
    expect(await search('ada')).toContain('No hash with <code>ada</code> has used anything.')
    // A whole hash is opened, also if it is in no list.
    await ratelimit.resetUsedTokens('eve')
    const [denied = ''] = rowsIn(list.text, 'id="denied"')[0] ?? []
    expect(await search(denied)).toContain('<strong class="bad">Denied since')
  })

  test('says which reservations may be one, on its page and on that of a key', async () => {
    const [api, tokens] = [1, 2].map(
      () => new Quota({ db: database.db, limiter: Ratelimit.fixedWindow(100, '1h'), prefix: newPrefix() }),
    )
    const requests = [
      { ratelimit: api as Quota, key: 'user:1', rate: 1 },
      { ratelimit: tokens as Quota, key: 'org:1', rate: 40 },
    ]
    await reserveAll(requests, { id: 'job', expires: '1h' })
    await tokens?.reserve('org:2', { rate: 40, id: 'job', expires: '2h' })
    const { get, open } = browse({ api: api as Quota, tokens: tokens as Quota })
    expect(
      rowsIn((await get('?limit=tokens')).text, 'id="reservations"').map((row) => row.slice(0, 3)),
    ).toEqual([
      ['org:1', 'job Also reserved: user:1 in api', '40'],
      ['org:2', 'job', '40'],
    ])
    const { text } = await open('api', 'user:1')
    expect(rowsIn(text, 'Open reservations')[0]?.[0]).toBe('job Also reserved: org:1 in tokens')
  })

  test('reads each key under its own plan, in order and in a search', async () => {
    const { ratelimit } = limiterOf(database.db)
    const [paid, free] = [Ratelimit.fixedWindow(500, '1h'), Ratelimit.tokenBucket(1, '1h', 10)]
    await ratelimit.limit('paid:1', { rate: 100, limiter: paid })
    await ratelimit.limit('free:1', { rate: 10, limiter: free })
    const planOf = (key: string) => (key === 'free:1' ? free : paid)
    const { get, post, open } = browse({ api: { ratelimit, limiterOf: planOf } })
    const rows = rowsIn((await get('?limit=api')).text, 'id="keys"')
    expect(rows.map((row) => row.slice(0, 4))).toEqual([
      ['free:1', '100 % 10', '0', '10'],
      ['paid:1', '20 % 100', '400', '500'],
    ])
    const { location } = await post('?limit=api', { key: 'paid', do: 'search' })
    expect(rowsIn((await get(location)).text, 'id="keys"')).toHaveLength(1)
    const own = await open('api', 'paid:1')
    expect(rowsIn(own.text)[0]?.slice(0, 4)).toEqual(['api 500 in 1 h', '20 % 100', '400', '500'])
  })

  test('shows rows of another plan as such, after the others', async () => {
    const { ratelimit } = limiterOf(database.db)
    await ratelimit.limit('other', { rate: 400, limiter: Ratelimit.slidingWindow(500, '1h') })
    await ratelimit.limit('own', { rate: 1 })
    const { text } = await browse({ api: ratelimit }).get('?limit=api')
    expect(rowsIn(text, 'id="keys"').map((row) => row.slice(0, 2))).toEqual([
      ['own', '20 % 1'],
      ['other', '400 another plan'],
    ])
  })

  test('lists who is blocked and until when, whatever they have used', async () => {
    const { ratelimit: api } = limiterOf(database.db, { use: [blocks()] })
    const { ratelimit: logins } = limiterOf(database.db, { limiter: lockout(2, '15m', { block: '1h' }) })
    await block(api, 'later', '2d')
    await block(api, 'sooner', '1h')
    await logins.limit('failing', { rate: 2 })
    await block(logins, 'by hand', '5h')
    await logins.limit('fine')
    const { get } = browse({ api, logins })
    const blocked = async (limit: string) => {
      const rows = rowsIn((await get(`?limit=${limit}`)).text, 'id="blocked"')
      return rows.map(([key, until = '']) => [key, until.split(' ').slice(0, 3).join(' ')])
    }
    expect(await blocked('api')).toEqual([
      ['sooner', 'in 60 min'],
      ['later', 'in 48 h'],
    ])
    expect(await blocked('logins')).toEqual([
      ['failing', 'in 60 min'],
      ['by hand', 'in 5 h'],
    ])
  })

  test('lists the slots of a semaphore and who holds most of them', async () => {
    const { db } = database
    const jobs = new Semaphore({ db, prefix: newPrefix(), limit: 2, lease: '10m' })
    for (const key of ['org:1', 'org:1', 'org:2']) await jobs.acquire(key)
    const freed = await jobs.acquire('org:3')
    if (freed.success) await freed.release()
    const { get, open } = browse({ jobs })
    const { text } = await get('?limit=jobs')
    expect(rowsIn(text, 'id="keys"').map((row) => row.slice(0, 4))).toEqual([
      ['org:1', '100 % 2', '0', '2'],
      ['org:2', '50 % 1', '1', '2'],
    ])
    expect(rowsIn(text, 'id="slots"').map((row) => row.slice(0, 2))).toEqual([
      ['org:1', '1'],
      ['org:1', '2'],
      ['org:2', '1'],
    ])
    // A page beyond the end is the last one.
    expect(rowsIn((await get('?limit=jobs&slots=9')).text, 'id="slots"')).toHaveLength(3)
    expect(rowsIn((await open('jobs', 'org:2')).text, 'Slots in use')[0]?.[0]).toBe('1')
    expect((await open('jobs', 'org:3')).text).toContain('<h2 id="unseen">No row</h2>')
  })

  test('lists dated credits by what is left, and the grants that end', async () => {
    const { db } = database
    const credits = new Credits({ db, prefix: newPrefix(), dated: true })
    await credits.grant('a/grant/b', 100, { id: 'gift 7', expires: '1d' })
    await credits.grant('a/grant/b', 100, { id: 'forever' })
    await credits.limit('a/grant/b', { rate: 50 })
    await credits.grant('org:1', 10, { id: 'gift', expires: '2d' })
    await credits.limit('org:1', { rate: 12, force: true })
    await credits.grant('org:2', 10, { id: 'unused' })
    const { get, open } = browse({ credits })
    const { text } = await get('?limit=credits')
    expect(rowsIn(text, 'id="keys"').map((row) => row.slice(0, 4))).toEqual([
      ['org:1', '100 % 12', '0', '10'],
      ['a/grant/b', '25 % 50', '150', '200'],
    ])
    expect(rowsIn(text, 'id="grants"').map((row) => row.slice(0, 3))).toEqual([
      ['a/grant/b', 'gift 7', '50'],
      ['org:1', 'gift', '0'],
    ])
    const ofKey = await open('credits', 'a/grant/b')
    expect(rowsIn(ofKey.text, 'Grants that end').map((row) => row.slice(0, 2))).toEqual([
      ['gift 7', '50'],
      ['forever', '100'],
    ])
  })
})
