import { blocks, lockout } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import type { DashboardAction } from '../../../src/dashboard/index.ts'
import { openReservations, Quota } from '../../../src/quota/index.ts'
import { Semaphore } from '../../../src/semaphore/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { browse, fieldsIn, five, limiterOf, newPrefix, rowsIn } from './browse.ts'

const database = useDatabase()

describe('a key', () => {
  test('is shown across all limits: what it has used, and where it has no row', async () => {
    const { db } = database
    const [api, other] = [limiterOf(db).ratelimit, limiterOf(db).ratelimit]
    const jobs = new Semaphore({ db, prefix: newPrefix(), limit: 2, lease: '10m' })
    await api.limit('user:1', { rate: 2 })
    await jobs.acquire('user:1')
    const { open } = browse({ api, other, jobs })
    const { text } = await open('api', 'user:1')
    expect(text).toContain('<code id="key">user:1</code>')
    expect(rowsIn(text).map((row) => row.slice(0, 4))).toEqual([
      ['api 5 in 1 h', '40 % 2', '3', '5'],
      ['jobs 2 at once, each for 10 min unless it is extended', '50 % 1', '1', '2'],
    ])
    expect(text.slice(text.indexOf('No row'))).toContain('<summary>other</summary>')
  })

  test('that nobody has used has no row, and not 0 of 5', async () => {
    const { text } = await browse({ api: limiterOf(database.db).ratelimit }).open('api', 'nobody')
    expect(text).toContain('<h2 id="unseen">No row</h2>')
    expect(text).not.toContain('<tbody>')
  })

  test('with any characters has an address without it, which every process with the secret opens', async () => {
    const { ratelimit } = limiterOf(database.db)
    for (const key of ['first\nsecond\rthird\r\n 100 %', 'ada@example.com', '<é>&"', 'a'.repeat(900)]) {
      await ratelimit.limit(key, { rate: 2 })
      const { open } = browse({ api: ratelimit })
      const { location } = await open('api', key).then(({ id }) => ({ location: `?limit=api&id=${id}` }))
      expect(decodeURIComponent(location)).not.toContain(key.slice(0, 3))
      expect(location).toMatch(/^\?limit=api&id=[\w-]+$/)
      expect(rowsIn((await browse({ api: ratelimit }).get(location)).text)[0]?.[1]).toBe('40 % 2')
    }
  })

  test('can be named as it is by links of the application', async () => {
    const { ratelimit } = limiterOf(database.db)
    await ratelimit.limit('user:1', { rate: 2 })
    const { get } = browse({ api: ratelimit })
    const { status, location } = await get('?key=user:1')
    expect([status, location.replace(/id=[\w-]+$/, 'id=')]).toEqual([303, '?id='])
    const { text } = await get(location)
    expect(rowsIn(text)[0]?.[1]).toBe('40 % 2')
    expect(text).not.toMatch(/(href|action)="[^"]*user/)
    expect(await get('?key=')).toMatchObject({ status: 400 })
  })

  test('of an address that no page has made is not there', async () => {
    const { get, open } = browse({ api: limiterOf(database.db).ratelimit })
    const { id } = await open('api', 'user:1')
    const changed = id.slice(0, -1) + (id.endsWith('A') ? 'B' : 'A')
    for (const each of ['', 'AAAA', '%', changed, id.slice(4)]) {
      expect(await get(`?id=${encodeURIComponent(each)}`)).toMatchObject({ status: 404 })
    }
  })
})

describe('a change', () => {
  test('is asked for once, says what has changed, and is handed to onAction with who has done it', async () => {
    const { ratelimit, prefix } = limiterOf(database.db)
    await ratelimit.limit('user:1', { rate: 2 })
    const actions: DashboardAction[] = []
    const { act, get } = browse({ api: ratelimit }, { onAction: (action) => void actions.push(action) })
    const { question, text, location } = await act('api', 'user:1', 'reset')
    expect(question).toContain('Reset <code>user:1</code> in api?')
    expect(question).toContain('the whole limit again')
    expect(text).toContain('<p class="done" role="status">api, user:1: It has its whole limit again.</p>')
    expect(location).not.toContain('user:1')
    expect(await ratelimit.getRemaining('user:1')).toMatchObject({ remaining: 5 })
    const change = 'It has its whole limit again.'
    const id = fieldsIn(question)['once']
    expect(actions).toEqual([{ id, action: 'reset', prefix, key: 'user:1', by: 'ada', change }])
    // A page that is loaded again changes nothing.
    await ratelimit.limit('user:1')
    await get(location)
    expect(await ratelimit.getRemaining('user:1')).toMatchObject({ remaining: 4 })
    expect(actions).toHaveLength(1)
  })

  test('changes nothing before the answer, and nothing that is refused is handed on', async () => {
    const { ratelimit } = limiterOf(database.db)
    await ratelimit.limit('user:1', { rate: 2 })
    const actions: DashboardAction[] = []
    const { open, post } = browse({ api: ratelimit }, { onAction: (action) => void actions.push(action) })
    const { id } = await open('api', 'user:1')
    expect(await post('?limit=api', { id, do: 'reset' })).toMatchObject({ status: 200 })
    for (const wrong of [
      { id: '', do: 'reset' },
      { id: 'AAAA', do: 'reset' },
    ])
      expect(await post('?limit=api', { ...wrong, sure: 'yes' })).toMatchObject({ status: 400 })
    expect(await post('?limit=api', { id, do: 'block', for: '1h', sure: 'yes' })).toMatchObject({
      status: 403,
    })
    expect(await ratelimit.getRemaining('user:1')).toMatchObject({ remaining: 3 })
    expect(actions).toEqual([])
  })

  test('of each kind is handed to onAction, with the key and who has made it', async () => {
    const { db } = database
    const api = limiterOf(db, { use: [blocks()] }).ratelimit
    const credits = new Credits({ db, prefix: newPrefix() })
    await credits.grant('ada', 100)
    for (const id of ['one', 'two']) await credits.reserve('ada', { rate: 4, id, expires: '1h' })
    const handed: DashboardAction[] = []
    const { act } = browse({ api, credits }, { onAction: (action) => void handed.push(action) })
    await act('api', 'ada', 'block', { for: '1h' })
    for (const action of ['unblock', 'reset']) await act('api', 'ada', action)
    for (const action of ['grant', 'take back']) await act('credits', 'ada', action, { amount: '9' })
    await act('credits', 'ada', 'settle', { held: 'one', cost: '3' })
    await act('credits', 'ada', 'release', { held: 'two' })
    expect(handed.map(({ action, prefix, key, by }) => [action, prefix, key, by])).toEqual([
      ...['block', 'unblock', 'reset'].map((action) => [action, api.prefix, 'ada', 'ada']),
      ...['grant', 'take back', 'settle', 'release'].map((action) => [action, credits.prefix, 'ada', 'ada']),
    ])
  })

  test('an error of onAction is thrown on, because who has done it is not written', async () => {
    const { ratelimit } = limiterOf(database.db)
    await ratelimit.limit('user:1', { rate: 2 })
    const { act } = browse(
      { api: ratelimit },
      {
        onAction: () => {
          throw new Error('no log')
        },
      },
    )
    await expect(act('api', 'user:1', 'reset')).rejects.toThrow('no log')
  })

  test('blocks a key of a lockout for one of several times, and unblocks it', async () => {
    const { ratelimit } = limiterOf(database.db, { limiter: lockout(5, '15m', { block: '1m' }), use: [] })
    const { act, open } = browse({ logins: ratelimit })
    expect((await open('logins', 'ada')).text).not.toMatch(/value="(reset|unblock)"/)
    const { text } = await act('logins', 'ada', 'block', { for: '1d' })
    expect(text).toContain('logins, ada: It is blocked for a day.')
    expect(rowsIn(text)[0]?.[4]).toMatch(/^blocked, ends in 24 h/)
    expect((await ratelimit.limit('ada')).retryAfter).toBeGreaterThan(86_300_000)
    for (const wrong of ['', 'long', '2 days', '-1h', '30d'])
      expect(await act('logins', 'ada', 'block', { for: wrong })).toMatchObject({ status: 400 })
    expect((await act('logins', 'ada', 'unblock')).text).toContain('It is not blocked any more.')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true })
  })

  test('blocks a key of another limit that has blocks, and keeps its count', async () => {
    const { ratelimit } = limiterOf(database.db, { use: [blocks()] })
    await ratelimit.limit('ada', { rate: 2 })
    const { act } = browse({ api: ratelimit })
    const { text } = await act('api', 'ada', 'block', { for: '1h' })
    expect(rowsIn(text)[0]?.slice(0, 3)).toEqual(['api 5 in 1 h', '40 % 2', '0'])
    expect(await ratelimit.limit('ada')).toMatchObject({ success: false })
    await act('api', 'ada', 'unblock')
    expect(await ratelimit.limit('ada')).toMatchObject({ success: true, remaining: 2 })
  })

  test('blocks a key of dated credits, which keeps its grants', async () => {
    const credits = new Credits({ db: database.db, prefix: newPrefix(), dated: true, use: [blocks()] })
    await credits.grant('ada', 5, { id: 'first' })
    const { act } = browse({ credits })
    const { text } = await act('credits', 'ada', 'block', { for: '1h' })
    expect(text).toContain('credits, ada: It is blocked for an hour.')
    expect(rowsIn(text)[0]?.[4]).toMatch(/^blocked, ends in 60 min/)
    expect(await credits.limit('ada')).toMatchObject({ success: false })
    await act('credits', 'ada', 'unblock')
    expect(await credits.limit('ada')).toMatchObject({ success: true, remaining: 4 })
  })

  test('grants credits and takes them back, a form once', async () => {
    const credits = new Credits({ db: database.db, prefix: newPrefix() })
    const { act, open, post } = browse({ credits })
    expect((await act('credits', 'org:1', 'grant', { amount: '250' })).text).toContain(
      '250 credits were granted. It has 250.',
    )
    const { id } = await open('credits', 'org:1')
    const { text } = await post('?limit=credits', { id, do: 'grant', amount: '50' })
    const twice = [0, 1].map(() => post('?limit=credits', { ...fieldsIn(text), do: 'grant' }))
    expect((await Promise.all(twice)).map(({ status }) => status)).toEqual([303, 303])
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 300 })
    for (const amount of ['', '0', '-5', '1.5', 'all'])
      expect(await act('credits', 'org:1', 'grant', { amount })).toMatchObject({ status: 400 })
    expect((await act('credits', 'org:1', 'take back', { amount: '100' })).text).toContain('It has 200.')
    expect((await act('credits', 'org:1', 'take back', { amount: '999' })).text).toContain(
      'Nothing was taken back: it has 200.',
    )
    expect(await act('credits', 'org:1', 'reset')).toMatchObject({ status: 403 })
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 200 })
  })

  test('takes back once, also if its form is sent again, and hands on the same change', async () => {
    const credits = new Credits({ db: database.db, prefix: newPrefix() })
    await credits.grant('org:1', 100)
    const actions: DashboardAction[] = []
    let isDown = true
    const onAction = (action: DashboardAction) => {
      actions.push(action)
      if (isDown) throw new Error('no log')
    }
    const { open, post, get } = browse({ credits }, { onAction })
    for (const [what, left] of [
      ['take back', 60],
      ['grant', 100],
    ] as const) {
      const { id } = await open('credits', 'org:1')
      const { text } = await post('?limit=credits', { id, do: what, amount: '40' })
      const sure = () => post('?limit=credits', { ...fieldsIn(text), do: what })
      isDown = true
      await expect(sure()).rejects.toThrow('no log')
      isDown = false
      const { location } = await sure()
      expect((await get(location)).text).toContain(
        `That was done before, and is not done again. It has ${left}.`,
      )
      expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: left })
      const [first, second] = actions.splice(0)
      expect(second).toEqual(first)
      expect(first).toMatchObject({ action: what, change: expect.stringMatching(/^40 credits were/) })
    }
  })

  test('that was denied, let pass or not answered took nothing back, and is not handed on', async () => {
    const actions: DashboardAction[] = []
    const onAction = (action: DashboardAction) => void actions.push(action)
    const prefix = newPrefix()
    const away = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
    let isAway = false
    const { db } = watch(database.db, (text) => {
      if (isAway && text.includes('insert')) throw away
    })
    const credits = new Credits({ db, prefix, onError: 'allow' })
    const dry = new Credits({ db, prefix, dryRun: true })
    await credits.grant('org:1', 10)
    const { act } = browse({ credits, dry }, { onAction })
    const nothing = 'Nothing was taken back'
    expect((await act('credits', 'org:1', 'take back', { amount: '40' })).text).toContain(nothing)
    expect((await act('dry', 'org:1', 'take back', { amount: '40' })).text).toContain(nothing)
    isAway = true
    const failed = await act('credits', 'org:1', 'take back', { amount: '4' })
    expect(failed).toMatchObject({ status: 503 })
    expect(failed.text).toContain('nothing is known to be taken back')
    expect(actions).toEqual([])
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 10 })
  })

  test('takes only whole numbers, written out, before it asks', async () => {
    const { db } = database
    const credits = new Credits({ db, prefix: newPrefix() })
    await credits.grant('org:1', 2_000)
    await credits.reserve('org:1', { rate: 40, id: 'job', expires: '1h' })
    const { open, post, act } = browse({ credits })
    const { id } = await open('credits', 'org:1')
    const wrong = ['', '-500', '1e3', '0x10', '1.5', ' 1', '9'.repeat(17)]
    for (const amount of [...wrong, '0'])
      for (const what of ['grant', 'take back'])
        for (const sure of [{}, { sure: 'yes' }])
          expect(await post('?limit=credits', { id, do: what, amount, ...sure })).toMatchObject({
            status: 400,
          })
    for (const cost of wrong)
      expect(await act('credits', 'org:1', 'settle', { held: 'job', cost })).toMatchObject({ status: 400 })
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 1_960 })
    await act('credits', 'org:1', 'settle', { held: 'job', cost: '0' })
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 2_000 })
  })

  test('that would be more than a row can hold is refused', async () => {
    const credits = new Credits({ db: database.db, prefix: newPrefix() })
    await credits.grant('org:1', Number.MAX_SAFE_INTEGER)
    const refused = await browse({ credits }).act('credits', 'org:1', 'grant', { amount: '1' })
    expect(refused).toMatchObject({ status: 400, text: expect.stringContaining('COUNT_OVERFLOW') })
  })

  test.each([
    ['2h', ['15m', '1h'], '1h', 'an hour'],
    ['10m', ['600000ms'], '600000ms', '10 min'],
  ])('blocks for no longer than the lockout allows: %s', async (max, lengths, length, words) => {
    const limiter = lockout(5, '15m', { block: '1m', max: max as '2h' })
    const { open, act } = browse({ logins: limiterOf(database.db, { limiter, use: [] }).ratelimit })
    const { text } = await open('logins', 'ada')
    expect([...text.matchAll(/<option value="(\w+)"/g)].map(([, each]) => each)).toEqual(lengths)
    const blocked = await act('logins', 'ada', 'block', { for: length })
    expect(blocked.text).toContain(`It is blocked for ${words}.`)
  })

  test('grants dated credits with an end, and takes a grant back', async () => {
    const credits = new Credits({ db: database.db, prefix: newPrefix(), dated: true })
    const { act } = browse({ credits })
    await act('credits', 'org:1', 'grant', { amount: '250', expires: '7d' })
    await act('credits', 'org:1', 'grant', { amount: '10', expires: 'never' })
    const [first, second] = await credits.grants('org:1')
    expect((first?.expires ?? 0) - (first?.granted ?? 0)).toBe(7 * 86_400_000)
    expect(second).toMatchObject({ amount: 10, expires: Number.POSITIVE_INFINITY })
    await credits.limit('org:1', { rate: 50 })
    const { text } = await act('credits', 'org:1', 'take back', { held: first?.id ?? '' })
    expect(text).toContain('200 credits were taken back.')
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 10 })
    expect((await act('credits', 'org:1', 'take back', { held: first?.id ?? '' })).text).toContain(
      'Nothing was taken back',
    )
  })

  test('settles and releases reservations, also of dated credits and of hashed keys and names', async () => {
    const { db } = database
    const quota = new Quota({ db, limiter: five, prefix: newPrefix(), hashKeys: true })
    const credits = new Credits({ db, prefix: newPrefix(), dated: true })
    await credits.grant('org:1', 100, { id: 'gift' })
    await credits.reserve('org:1', { rate: 40, id: 'job/7', expires: '1h' })
    for (const id of ['job:1', 'job:2']) await quota.reserve('org:1', { rate: 2, id, expires: '1h' })
    const { act } = browse({ quota, credits })
    const [one, two] = await openReservations(quota)
    const settled = await act('quota', 'org:1', 'settle', { held: one?.id ?? '', cost: '1' })
    expect(settled.question).toContain('<dt>Cost</dt><dd>1</dd>')
    expect(settled.text).toContain('was settled with 1.')
    expect(settled.question).toContain('in several limits together')
    const again = await act('quota', 'org:1', 'settle', { held: one?.id ?? '', cost: '1' })
    expect(again.text).toContain('That was done before, and is not done again.')
    expect(await quota.getRemaining('org:1')).toMatchObject({ used: 3 })
    await act('quota', 'org:1', 'release', { held: two?.id ?? '' })
    expect(await quota.getRemaining('org:1')).toMatchObject({ used: 1 })
    expect(await act('quota', 'org:1', 'settle', { held: one?.id ?? '', cost: '2' })).toMatchObject({
      status: 400,
    })
    expect(await act('quota', 'org:1', 'release', { held: 'none' })).toMatchObject({ status: 400 })
    await act('credits', 'org:1', 'settle', { held: 'job/7', cost: '30' })
    expect(await credits.getRemaining('org:1')).toMatchObject({ remaining: 70 })
  })

  test('reaches a reservation and a grant with line breaks in their names, which browsers change', async () => {
    const { db } = database
    const quota = new Quota({ db, limiter: five, prefix: newPrefix() })
    const credits = new Credits({ db, prefix: newPrefix(), dated: true })
    const id = 'one\ntwo\rthree 100 %41'
    await quota.reserve('org:1', { rate: 2, id, expires: '1h' })
    await credits.grant('org:1', 100, { id })
    const { act, open } = browse({ quota, credits })
    const { held = '' } = fieldsIn((await open('quota', 'org:1')).text)
    expect((await act('quota', 'org:1', 'release', { held })).text).toContain('was released.')
    expect(await quota.getRemaining('org:1')).toMatchObject({ used: 0 })
    const back = await act('credits', 'org:1', 'take back', { held })
    expect(back.text).toContain('100 credits were taken back.')
  })

  test('of a reservation whose plan cannot be told is refused, without the error of the application', async () => {
    const ratelimit = new Quota({ db: database.db, limiter: five, prefix: newPrefix() })
    await ratelimit.reserve('org:1', { rate: 2, id: 'job', expires: '1h' })
    const limiterOf = () => {
      throw new Error('no plan of org:1')
    }
    const { act } = browse({ planned: { ratelimit, limiterOf } })
    const refused = await act('planned', 'org:1', 'release', { held: 'job' })
    expect(refused).toMatchObject({ status: 400, text: expect.stringContaining('limiterOf has thrown') })
    expect(refused.text).not.toContain('no plan of org:1')
  })
})
