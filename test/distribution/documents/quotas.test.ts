import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { and, eq } from 'drizzle-orm'
import {
  type Limiter,
  type LimitResult,
  Ratelimit,
  type RatelimitConfig,
  rateLimitDurable,
} from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { Credits } from 'drizzle-ratelimit/credits'
import {
  openReservations,
  Quota,
  type QuotaConfig,
  type SettledSpending,
  spend,
} from 'drizzle-ratelimit/quota'
import type { KeyUsage, OtherUsage } from 'drizzle-ratelimit/reports'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import * as app from '../../support/docs-app.ts'
import { quotaPages } from '../../support/recipes.ts'
import { undone } from '../../support/undone.ts'

// Every block of the pages on quotas and costs is run as it stands there, on PGlite. The limiters' clock
// is this process' date, which the tests set.

vi.mock('drizzle-ratelimit', async (importOriginal) => {
  const original = await importOriginal<typeof import('drizzle-ratelimit')>()
  const timed = { clock: () => new Date() }
  class TimedRatelimit extends original.Ratelimit {
    constructor(config: RatelimitConfig) {
      super({ ...timed, cleanupProbability: 0, ...config } as RatelimitConfig)
    }
  }
  return { ...original, Ratelimit: TimedRatelimit }
})

vi.mock('drizzle-ratelimit/quota', async (importOriginal) => {
  const original = await importOriginal<typeof import('drizzle-ratelimit/quota')>()
  class TimedQuota extends original.Quota {
    constructor(config: QuotaConfig) {
      super({ clock: () => new Date(), cleanupProbability: 0, ...config } as QuotaConfig)
    }
  }
  return { ...original, Quota: TimedQuota }
})

vi.mock('drizzle-ratelimit/reports', async (importOriginal) => {
  const original = await importOriginal<typeof import('drizzle-ratelimit/reports')>()
  const timed: typeof original.usedOf = (table, limiter, options) =>
    original.usedOf(table, limiter, { clock: () => new Date(), ...options })
  return { ...original, usedOf: timed }
})

/** The headings of all blocks, and of those that were run. */
const written: string[] = []
const taken = new Set<string>()
let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/quotas-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
  let heading = ''
  for (const [, title, code] of (await quotaPages()).matchAll(/^#+ (.*)$|^```ts\n([\s\S]*?)^```/gm)) {
    if (title) heading = title
    if (!code) continue
    written.push(heading)
    await writeFile(fileOf(heading), code)
  }
})
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'] })
  at('2026-03-10T12:00:00Z')
})
afterAll(async () => {
  // Files share a process.
  vi.useRealTimers()
  await rm(folder, { recursive: true })
})

/** What the section's block exports. */
function block<Exports>(heading: string): Promise<Exports> {
  taken.add(heading)
  return import(fileOf(heading))
}

function fileOf(heading: string): string {
  return join(folder, `${heading.replaceAll(/\W+/g, '-')}.ts`)
}

function at(time: string | number): void {
  vi.setSystemTime(time)
}

function ms(time: string): number {
  return Date.parse(time)
}

/** What the table says that a key has used; nothing where it has no row. */
async function stored(prefix: string, key: string): Promise<number | null | undefined> {
  const { prefix: prefixes, key: keys } = rateLimitDurable
  const isTheirs = and(eq(prefixes, prefix), eq(keys, key))
  const [row] = await app.db.select().from(rateLimitDurable).where(isTheirs)
  return row?.count
}

async function newOrg(id: string, plan: app.Plan, since: string, timeZone = 'UTC'): Promise<app.Org> {
  const made = { id, plan, since: new Date(since), timeZone }
  await app.db.insert(app.orgs).values(made)
  return made
}

const ROLLBACK = new Error('rollback')

describe('what the page says', () => {
  test('periods', async () => {
    const limiters = await block<Record<'utc' | 'tokyo' | 'subscription', Limiter>>('Periods')
    const quota = new Quota({ db: app.db, limiter: limiters.utc, prefix: 'periods' })
    const period = async (limiter: Limiter) => {
      await quota.limit('org', { limiter })
      const { start = 0, reset } = await quota.getRemaining('org', { limiter })
      return [start, reset].map((time) => new Date(time).toISOString())
    }
    const days = {
      utc: ['2026-03-01T00:00:00.000Z', '2026-04-01T00:00:00.000Z'],
      tokyo: ['2026-02-28T15:00:00.000Z', '2026-03-31T15:00:00.000Z'],
      // In Berlin it is winter at the start and summer at the end.
      subscription: ['2026-02-28T09:15:00.000Z', '2026-03-31T08:15:00.000Z'],
    }
    for (const name of ['utc', 'tokyo', 'subscription'] as const) {
      expect(await period(limiters[name])).toEqual(days[name])
    }
    at('2026-03-31T08:15:00Z')
    expect(await period(limiters.subscription)).toEqual([
      '2026-03-31T08:15:00.000Z',
      '2026-04-30T08:15:00.000Z',
    ])
  })

  test('plans: the next plan counts what has been used', async () => {
    const team = calendarWindow(100, 'month')
    const quota = new Quota({ db: app.db, limiter: team, prefix: 'plans', durable: true })
    await quota.limit('org', { rate: 70 })
    const left = async (limiter?: Limiter) => (await quota.getRemaining('org', { limiter })).remaining

    expect(await left(calendarWindow(500, 'month'))).toBe(430)
    expect(await left(calendarWindow(50, 'month'))).toBe(0)
    expect(await left(calendarWindow(100, 'year'))).toBe(30)
    expect(await left(calendarWindow(100, 'day'))).toBe(100)
    const anchor = new Date('2026-02-20T00:00:00Z')
    expect(await left(calendarWindow(100, 'month', { anchor }))).toBe(30)
    expect(await left(calendarWindow(100, 'month', { timeZone: 'Asia/Tokyo' }))).toBe(30)
    expect(await left(calendarWindow(100, 'month', { timeZone: 'America/Lima' }))).toBe(100)
    expect(await left(Ratelimit.fixedWindow(100, '30d'))).toBe(100)

    const limiter = Ratelimit.unlimited()
    expect(await quota.limit('org', { rate: 1000, limiter })).toMatchObject({ success: true })
    const none = { limiter: calendarWindow(0, 'month') }
    expect(await quota.limit('org', none)).toMatchObject({ success: false, retryAfter: Infinity })
    expect(await left()).toBe(30)
    expect(await stored('plans', 'org')).toBe(70)
    at('2026-04-01T00:00:00Z')
    expect(await left()).toBe(100)
  })

  test('plans: a bucket keeps what is left, and is new after a sweep', async () => {
    const small = Ratelimit.tokenBucket(1, '1h', 10)
    const large = Ratelimit.tokenBucket(1, '1h', 100)
    const quota = new Quota({ db: app.db, limiter: small, prefix: 'bucket plans', durable: true })
    await quota.limit('org')
    expect(await quota.getRemaining('org', { limiter: large })).toMatchObject({ remaining: 9, used: 91 })
    at('2026-03-12T12:00:00Z')
    // Full by the small plan, and 48 hours later by the large one.
    expect(await quota.getRemaining('org')).toMatchObject({ remaining: 10 })
    expect(await quota.getRemaining('org', { limiter: large })).toMatchObject({ remaining: 57 })
    expect(await quota.cleanup()).toBe(1)
    expect(await quota.getRemaining('org', { limiter: large })).toMatchObject({ remaining: 100 })
  })

  test('an event is charged once', async () => {
    const { delivered } = await block<{
      delivered(event: { id: string; org: string; units: number }): Promise<LimitResult>
    }>('An event that may come twice')
    const event = { id: 'event:1', org: 'once', units: 600 }
    expect(await delivered(event)).toMatchObject({ success: true, remaining: 400 })
    expect(await delivered(event)).toMatchObject({ repeated: true, remaining: 400 })
    const denied = { id: 'event:2', org: 'once', units: 600 }
    expect(await delivered(denied)).toMatchObject({ success: false })
    at('2026-04-01T00:00:00Z')
    expect(await delivered(denied)).not.toHaveProperty('repeated')
  })

  test('a debt ends with its period, or is paid back by refills', async () => {
    const { served, traffic } = await block<{
      served(org: string, megabytes: number): Promise<LimitResult>
      traffic: Quota
    }>('Debts')
    await served('org', 900)
    expect(await served('org', 400)).toMatchObject({ success: true, remaining: 0 })
    expect(await traffic.getRemaining('org')).toMatchObject({ used: 1300, remaining: 0 })
    expect(await traffic.limit('org')).toMatchObject({ success: false, reset: ms('2026-04-01T00:00:00Z') })
    at('2026-04-01T00:00:00Z')
    expect(await traffic.getRemaining('org')).toMatchObject({ used: 0, remaining: 1000 })

    const limiter = Ratelimit.tokenBucket(1, '1h', 10)
    await traffic.limit('bucket', { rate: 12, force: true, limiter })
    expect(await traffic.limit('bucket', { limiter })).toMatchObject({
      success: false,
      retryAfter: 3 * 3_600_000,
    })
  })

  test('a reservation is settled once, and gives back to the period that paid', async () => {
    const limiter = calendarWindow(1000, 'month')
    const quota = new Quota({ db: app.db, limiter, prefix: 'reserved', durable: true })
    const reserve = async (key: string) => {
      const reserved = await quota.reserve(key, { rate: 400 })
      if (!reserved.success) throw new Error('denied')
      return reserved
    }
    const [less, more, late, later] = [
      await reserve('less'),
      await reserve('more'),
      await reserve('late'),
      await reserve('later'),
    ]
    await less.commit(100)
    expect(await stored('reserved', 'less')).toBe(100)
    await expect(less.release()).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    await more.commit(1500)
    expect(await stored('reserved', 'more')).toBe(1500)

    at('2026-04-02T00:00:00Z')
    await quota.limit('late', { rate: 300 })
    await late.commit(100)
    expect(await quota.getRemaining('late')).toMatchObject({ used: 300 })
    await later.commit(500)
    expect(await quota.getRemaining('later')).toMatchObject({ used: 100 })
  })

  test('a reservation in a transaction is settled outside it, unless in it', async () => {
    const limiter = calendarWindow(1000, 'month')
    const quota = new Quota({ db: app.db, limiter, prefix: 'joined', durable: true })
    let waiting: Promise<LimitResult> | undefined
    let settled = false
    await app.db.transaction(async (tx) => {
      const reserved = await quota.reserve('org', { rate: 400, tx })
      if (!reserved.success) throw new Error('denied')
      waiting = reserved.commit(100).finally(() => {
        settled = true
      })
      await sleep(50)
    })
    expect(settled).toBe(false)
    await waiting
    expect(await stored('joined', 'org')).toBe(100)

    await app.db.transaction(async (tx) => {
      const reserved = await quota.reserve('org', { rate: 400, tx })
      if (reserved.success) await reserved.commit(50, { tx })
    })
    expect(await stored('joined', 'org')).toBe(150)
    await undone(app.db, (tx) => quota.reserve('org', { rate: 400, tx }))
    expect(await stored('joined', 'org')).toBe(150)
  })

  test('thresholds, dry runs, and pages for people', async () => {
    const { upload, page, uploads } = await block<{
      upload(org: string, megabytes: number): Promise<{ crossed: readonly number[]; wouldDeny: boolean }>
      page(org: string): Promise<{
        used: number
        limit: number
        start?: number
        reset: number
        biggest: (KeyUsage | OtherUsage)[]
      }>
      uploads: Quota
    }>('Knowing what is used')
    expect(await upload('small', 10)).toEqual({ crossed: [], wouldDeny: false })
    expect(await upload('big', 799)).toEqual({ crossed: [], wouldDeny: false })
    expect(await upload('big', 1)).toEqual({ crossed: [0.8], wouldDeny: false })
    // What is given back and used again crosses nothing again.
    await uploads.limit('big', { rate: -500 })
    expect(await upload('big', 500)).toEqual({ crossed: [], wouldDeny: false })
    expect(await upload('big', 300)).toEqual({ crossed: [], wouldDeny: true })
    const [start, reset] = [ms('2026-03-01T00:00:00Z'), ms('2026-04-01T00:00:00Z')]
    const standing = { used: 800, limit: 1000, start, reset }
    expect(await page('big')).toMatchObject(standing)
    expect((await page('big')).biggest).toEqual([
      { key: 'big', ...standing, remaining: 200 },
      { key: 'small', ...standing, used: 10, remaining: 990 },
    ])
    const limiter = calendarWindow(2000, 'month')
    expect(await uploads.limit('big', { rate: 800, limiter })).toMatchObject({ crossed: [0.8] })

    const others = {
      window: Ratelimit.fixedWindow(1000, '1d'),
      anchored: calendarWindow(1000, 'month', { anchor: new Date('2026-02-20T00:00:00Z') }),
    }
    for (const [key, limiter] of Object.entries(others)) await uploads.limit(key, { rate: 500, limiter })
    expect((await page('big')).biggest.map(({ key, isOther = false }) => [key, isOther])).toEqual([
      ['big', false],
      ['anchored', true],
      ['window', true],
      ['small', false],
    ])
    for (const [key, limiter] of Object.entries(others)) {
      expect(await uploads.getRemaining(key, { limiter })).toMatchObject({ used: 500 })
      await uploads.limit(key, { rate: 500, limiter })
      await uploads.limit(key, { rate: -500, limiter })
    }
    expect(await uploads.limit('window', { rate: 500, limiter: others.window })).toMatchObject({
      crossed: [0.8, 1],
    })
    expect(await uploads.limit('anchored', { rate: 500, limiter: others.anchored })).not.toHaveProperty(
      'crossed',
    )
  })
})

describe('the cookbook', () => {
  test('a monthly plan, with an upgrade in the middle', async () => {
    const { report, change, reports } = await block<{
      report(org: app.Org, pages: number): Promise<number>
      change(org: app.Org, plan: app.Plan): Promise<app.Org>
      reports: Quota
    }>('A monthly plan, with an upgrade in the middle')
    let org = await newOrg('monthly', 'team', '2026-01-31T09:15:00Z', 'Europe/Berlin')
    expect(await report(org, 900)).toBe(100)
    const monthsEnd = ms('2026-03-31T08:15:00Z')
    await expect(report(org, 200)).rejects.toMatchObject({ retryAfter: monthsEnd - Date.now() })
    expect(await stored('reports', org.id)).toBe(900)

    org = await change(org, 'business')
    expect(await report(org, 200)).toBe(3900)
    expect(await stored('reports', org.id)).toBe(1100)
    org = await change(org, 'suspended')
    await expect(report(org, 1)).rejects.toMatchObject({ retryAfter: Infinity })
    org = await change(org, 'enterprise')
    expect(await report(org, 1_000_000)).toBe(Infinity)
    org = await change(org, 'team')
    await expect(report(org, 1)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await stored('reports', org.id)).toBe(1100)

    at(monthsEnd - 1)
    await expect(report(org, 1)).rejects.toMatchObject({ retryAfter: 1 })
    at(monthsEnd)
    expect(await report(org, 1)).toBe(999)

    // The limit of the limiter itself is for those who have no plan.
    expect(await reports.limit('nobody')).toMatchObject({ success: false })
    // Another anchor is another month.
    expect(await report({ ...org, since: new Date(monthsEnd + 1) }, 1)).toBe(998)
    at(monthsEnd + 2)
    expect(await report({ ...org, since: new Date(monthsEnd + 1) }, 1)).toBe(999)
  })

  test('twelve of these months are the year of a subscription', async () => {
    const { report } = await block<{ report(org: app.Org, pages: number): Promise<number> }>(
      'A monthly plan, with an upgrade in the middle',
    )
    for (const [since, ends] of [
      ['2024-02-29T12:00:00Z', ['2026-03-29T12:00:00Z', '2027-02-28T12:00:00Z', '2028-02-29T12:00:00Z']],
      ['2025-08-31T12:00:00Z', ['2026-03-31T12:00:00Z', '2026-06-30T12:00:00Z', '2026-08-31T12:00:00Z']],
    ] as const) {
      const org = await newOrg(`yearly since ${since}`, 'team', since)
      for (const end of ends) {
        at(ms(end) - 1)
        const left = await report(org, 1)
        await expect(report(org, left + 1)).rejects.toMatchObject({ retryAfter: 1 })
        at(end)
        expect(await report(org, 1)).toBe(999)
      }
    }
  })

  test('a bucket that keeps its use', async () => {
    const { exported, exportRows, move } = await block<{
      exported: Quota
      exportRows(org: string, rate: number): Promise<LimitResult>
      move(org: string, to: app.Plan): Promise<void>
    }>('A bucket that keeps what was used')
    const used = async (org: string, maxTokens: number) => {
      const limiter = Ratelimit.tokenBucket(1, '1h', maxTokens)
      return (await exported.getRemaining(org, { limiter })).used
    }
    for (const [org, rate] of Object.entries({ one: 1, all: 10, none: 0, debt: 12 })) {
      await newOrg(org, 'team', '2026-01-01T00:00:00Z')
      await exported.limit(org, { rate, force: true })
      // A change may be delivered twice.
      for (const [plan, size] of Object.entries({ business: 100, team: 10 }) as [app.Plan, number][]) {
        await move(org, plan)
        await move(org, plan)
        expect(await used(org, size)).toBe(rate)
      }
    }
    expect(await exportRows('one', 9)).toMatchObject({ success: true, limit: 10, remaining: 0 })
    await undone(app.db, (tx) => tx.update(app.orgs).set({ plan: 'business' }).where(eq(app.orgs.id, 'one')))
    expect(await exportRows('one', 1)).toMatchObject({ success: false, limit: 10 })
    await move('one', 'business')
    expect(await exportRows('one', 90)).toMatchObject({ success: true, limit: 100, remaining: 0 })
  })

  test('a time zone that the customer may change', async () => {
    const { lookup, lookups, relocate } = await block<{
      lookup(org: string): Promise<LimitResult>
      lookups: Quota
      relocate(org: string, timeZone: string): Promise<string>
    }>('A time zone that the customer may change')
    const useUp = async (org: string) => {
      let calls = 0
      while ((await lookup(org)).success) calls++
      return calls
    }
    await newOrg('moves', 'team', '2026-01-01T00:00:00Z')
    expect(await useUp('moves')).toBe(10)
    // Without the recipe, the zone to the west has a day of its own.
    const limiter = calendarWindow(10, 'day', { timeZone: 'America/Lima' })
    expect(await lookups.getRemaining('moves', { limiter })).toMatchObject({ remaining: 10 })
    expect(await relocate('moves', 'America/Lima')).toBe('moved')
    expect(await useUp('moves')).toBe(0)
    at('2026-03-11T04:59:59.999Z')
    expect(await useUp('moves')).toBe(0)
    // Tokyo has another date. The last hour of Lima's day would end as the first of Tokyo's.
    expect(await relocate('moves', 'Asia/Tokyo')).toBe('try later')
    at('2026-03-11T05:00:00Z')
    expect(await relocate('moves', 'Asia/Tokyo')).toBe('moved')
    expect(await useUp('moves')).toBe(10)
    expect(await relocate('nobody', 'Asia/Tokyo')).toBe('unknown')
  })

  test('a customer who follows midnight around the world gets one limit for each date', async () => {
    const { lookup, relocate } = await block<{
      lookup(org: string): Promise<LimitResult>
      relocate(org: string, timeZone: string): Promise<string>
    }>('A time zone that the customer may change')
    await newOrg('follows', 'team', '2026-01-01T00:00:00Z')
    let calls = 0
    const moves: string[] = []
    for (let hour = 0; hour < 30; hour++) {
      at(ms('2026-03-12T00:00:00Z') + hour * 3_600_000)
      // Where it is one in the morning, or eleven at night: the name of a zone has the opposite sign.
      for (const local of [1, 23]) {
        const ahead = ((local - hour + 48 + 11) % 24) - 11
        moves.push(await relocate('follows', `Etc/GMT${ahead > 0 ? '-' : '+'}${Math.abs(ahead)}`))
      }
      while ((await lookup('follows')).success) calls++
    }
    // The 11th in the west, the 12th, and the 13th in the east.
    expect(calls).toBeLessThanOrEqual(30)
    expect(calls).toBeGreaterThanOrEqual(20)
    expect(new Set(moves)).toEqual(new Set(['moved', 'try later']))
  })

  test('LLM tokens with reserve and commit', async () => {
    const { complete, tokens } = await block<{
      complete(org: string, prompt: string): Promise<string>
      tokens: Quota
    }>('LLM tokens with reserve and commit')
    const prompt = 'x'.repeat(1000)
    const completions = () => app.db.$count(app.completions, eq(app.completions.org, 'llm'))
    const thinking = vi.spyOn(app.llm, 'complete')

    // The estimate is charged while the model thinks, and nothing is locked.
    const during: number[] = []
    thinking.mockImplementation(async () => {
      during.push((await tokens.getRemaining('llm')).used)
      return { text: 'ok', tokens: 2500 }
    })
    expect(await complete('llm', prompt)).toBe('ok')
    expect([during, await stored('llm-tokens', 'llm'), await completions()]).toEqual([[4000], 2500, 1])

    thinking.mockRejectedValueOnce(new app.Refused('overloaded'))
    await expect(complete('llm', prompt)).rejects.toThrow('overloaded')
    expect(await stored('llm-tokens', 'llm')).toBe(2500)
    thinking.mockRejectedValueOnce(new Error('no answer'))
    await expect(complete('unanswered', prompt)).rejects.toThrow('no answer')
    expect(await stored('llm-tokens', 'unanswered')).toBe(4000)

    // What it has cost beyond the estimate is charged, although so much is not left.
    thinking.mockResolvedValueOnce({ text: 'long', tokens: 120_000 })
    await complete('llm', prompt)
    expect(await stored('llm-tokens', 'llm')).toBe(122_500)
    thinking.mockClear()
    await expect(complete('llm', prompt)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(thinking).not.toHaveBeenCalled()
    expect(await completions()).toBe(2)

    // Those that run at once do not spend the same tokens.
    const many = Array.from({ length: 30 }, () => complete('crowd', prompt))
    const refused = (await Promise.allSettled(many)).filter(({ status }) => status === 'rejected')
    expect(refused).toHaveLength(5)

    // What cannot be stored, and what a crash leaves, is the estimate.
    thinking.mockImplementation(async () => {
      await app.db.$client.exec('alter table completions rename to away')
      return { text: 'lost', tokens: 2500 }
    })
    await expect(complete('lost', prompt)).rejects.toThrow()
    await app.db.$client.exec('alter table away rename to completions')
    expect(await stored('llm-tokens', 'lost')).toBe(4000)
    thinking.mockRestore()
  })

  test('a cost that a webhook reports', async () => {
    const { film, filmed } = await block<{
      film(org: string, script: string): Promise<void>
      filmed(told: { reference: string; length: number }): Promise<LimitResult & { repeated?: true }>
    }>('A cost that a webhook reports')
    const filming = vi.spyOn(app.studio, 'film')
    await film('org', 'x'.repeat(500))
    const reference = filming.mock.calls[0]?.[1].reference ?? ''
    expect(await stored('video-seconds', 'org')).toBe(500)

    const forged = reference.replace('org', 'another')
    await expect(filmed({ reference: forged, length: 1 })).rejects.toMatchObject({ code: 'NOT_RESERVED' })
    await expect(filmed({ reference, length: -1 })).rejects.toMatchObject({ code: 'INVALID_RATE' })
    expect(await stored('video-seconds', 'org')).toBe(500)

    const told = { reference, length: 120 }
    const twice = await Promise.all([filmed(told), filmed(told)])
    expect(twice.filter(({ repeated }) => repeated)).toHaveLength(1)
    expect(await filmed(told)).toMatchObject({ repeated: true })
    expect(await stored('video-seconds', 'org')).toBe(120)
    await expect(film('org', 'x'.repeat(3600))).rejects.toBeInstanceOf(app.QuotaExceeded)

    const failed = async (error: Error) => {
      filming.mockRejectedValueOnce(error)
      await expect(film('org', 'x'.repeat(500))).rejects.toBe(error)
      return filming.mock.lastCall?.[1].reference ?? ''
    }
    const refused = await failed(new app.Refused('no such film'))
    expect(await stored('video-seconds', 'org')).toBe(120)
    await expect(filmed({ reference: refused, length: 300 })).rejects.toMatchObject({
      code: 'ALREADY_SETTLED',
    })
    expect(await stored('video-seconds', 'org')).toBe(120)

    const unknown = await failed(new Error('no answer'))
    expect(await stored('video-seconds', 'org')).toBe(620)
    expect(
      await openReservations({ db: app.db, prefix: 'video-seconds', durable: true }, { key: 'org' }),
    ).toMatchObject([{ id: JSON.parse(unknown).id, rate: 500 }])
    expect(await filmed({ reference: unknown, length: 300 })).not.toHaveProperty('repeated')
    expect(await stored('video-seconds', 'org')).toBe(420)
    filming.mockRestore()
  })

  test('as many tokens as there are', async () => {
    const { write } = await block<{
      write(org: string, prompt: string): Promise<{ maxTokens: number; text: string }>
    }>('As many tokens as there are')
    const thinking = vi.spyOn(app.llm, 'complete')
    thinking.mockImplementation(async (prompt) => ({ text: prompt, tokens: 3950 }))
    expect(await write('org', 'prompt')).toMatchObject({ maxTokens: 4000 })
    expect(await write('org', 'prompt')).toMatchObject({ maxTokens: 4000 })
    thinking.mockImplementation(async (prompt) => ({ text: prompt, tokens: 2050 }))
    expect(await write('org', 'prompt')).toMatchObject({ maxTokens: 2100 })
    expect(thinking).toHaveBeenLastCalledWith('prompt', { maxTokens: 2100 })
    await expect(write('org', 'prompt')).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await stored('output-tokens', 'org')).toBe(9950)

    for (const [error, left] of [
      [new app.Refused('overloaded'), 0],
      [new Error('no answer'), 4000],
    ] as const) {
      thinking.mockRejectedValueOnce(error)
      await expect(write('another', 'prompt')).rejects.toBe(error)
      expect(await stored('output-tokens', 'another')).toBe(left)
    }
    thinking.mockRestore()
  })

  test('a failed job is refunded', async () => {
    const { start, fail } = await block<{
      start(org: string, cost: number): Promise<{ id: number }>
      fail(id: number): Promise<void>
    }>('A failed job is refunded')
    const minutes = () => stored('render-minutes', 'org')
    const first = await start('org', 100)
    await start('org', 400)
    await expect(start('org', 200)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect([await minutes(), await app.db.$count(app.renders)]).toEqual([500, 2])
    await fail(first.id)
    await fail(first.id)
    expect(await minutes()).toBe(400)

    at('2026-03-31T23:59:59.999Z')
    const [last, later] = [await start('org', 100), await start('org', 100)]
    await fail(last.id)
    expect(await minutes()).toBe(500)
    at('2026-04-01T00:00:00Z')
    await start('org', 300)
    await fail(later.id)
    expect(await minutes()).toBe(300)
  })

  test('a reservation with a name', async () => {
    type Job = (org: string, job: string) => Promise<unknown>
    const { accept, done, giveBackExpired, openJobs } = await block<{
      accept: Job
      done(org: string, job: string, cost: number): Promise<LimitResult>
      giveBackExpired(): Promise<unknown[]>
      openJobs(org: string): Promise<unknown[]>
    }>('Reservations with a name')
    const credits = new Credits({ db: app.db, prefix: 'job-credits' })
    await credits.grant('jobs', 250)
    await Promise.all([accept('jobs', 'one'), accept('jobs', 'one'), accept('jobs', 'two')])
    await expect(accept('jobs', 'three')).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await openJobs('jobs')).toHaveLength(2)
    expect(await done('jobs', 'one', 30)).toMatchObject({ remaining: 120 })
    expect(await done('jobs', 'one', 30)).toMatchObject({ remaining: 120, repeated: true })
    await accept('jobs', 'one')
    expect(await giveBackExpired()).toEqual([])
    at('2026-03-10T12:10:00Z')
    expect(await giveBackExpired()).toMatchObject([{ id: 'two', rate: 100, returned: 100 }])
    await expect(done('jobs', 'two', 70)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
    expect(await credits.getRemaining('jobs')).toMatchObject({ used: 30, remaining: 220 })
    expect(await openJobs('jobs')).toEqual([])
  })

  test('several limits under one name', async () => {
    const { begin, end } = await block<{
      begin(org: string, job: string): Promise<void>
      end(org: string, job: string, cost: number): Promise<SettledSpending>
    }>('Several limits under one name')
    const paid = new Credits({ db: app.db, prefix: 'job-paid' })
    await paid.grant('both', 50)
    for (let job = 0; job < 9; job++) await begin('both', `job ${job}`)
    await Promise.all([begin('both', 'last but one'), begin('both', 'last but one'), begin('both', 'job 0')])
    await expect(begin('both', 'last')).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await end('both', 'job 0', 130)).toMatchObject({ granted: [100, 30] })
    expect(await end('both', 'job 0', 130)).toMatchObject({ repeated: true })
    expect(await end('both', 'job 1', 0)).toMatchObject({ granted: [0, 0] })
    await begin('both', 'last')
    expect(await paid.getRemaining('both')).toMatchObject({ used: 30 })
  })

  test('a charge that is delivered twice', async () => {
    const { deliver } = await block<{
      deliver(event: { id: string; org: string; units: number }): Promise<string>
    }>('A charge that is delivered twice')
    const event = { id: 'event 1', org: 'org', units: 600 }
    const twice = await Promise.all([deliver(event), deliver(event)])
    expect(twice.toSorted()).toEqual(['charged', 'known'])
    expect(await deliver(event)).toBe('known')
    expect(await stored('units', 'org')).toBe(600)

    const other = { ...event, id: 'event 2' }
    await expect(deliver(other)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect([await app.db.$count(app.events), await stored('units', 'org')]).toEqual([1, 600])
    at('2026-04-01T00:00:00Z')
    expect(await deliver(other)).toBe('charged')
    expect(await stored('units', 'org')).toBe(600)
  })

  test('an estimate, first from the month, then from the credits', async () => {
    const { ask, month, credits } = await block<{
      ask(org: string, prompt: string): Promise<void>
      month: Quota
      credits: Credits
    }>('An estimate, first from the month, then from the credits')
    const used = async (org: string) => [
      (await month.getRemaining(org)).used,
      (await credits.getRemaining(org)).used,
    ]
    const thinking = vi.spyOn(app.llm, 'complete')
    const costing = (tokens: number, meanwhile = () => {}) =>
      thinking.mockImplementationOnce(async () => {
        meanwhile()
        return { text: '', tokens }
      })
    const prompt = (estimate: number) => 'x'.repeat(estimate / 4)

    // The month grants all of the estimate, and its whole cost is more than the month has left.
    await credits.grant('org', 100_000)
    costing(9000)
    await ask('org', prompt(400))
    expect(await used('org')).toEqual([1000, 8000])
    // More than there is at all: the credits are in debt.
    costing(93_000)
    await ask('org', prompt(400))
    expect(await used('org')).toEqual([1000, 101_000])
    const untilApril = ms('2026-04-01T00:00:00Z') - Date.now()
    await expect(ask('org', prompt(400))).rejects.toMatchObject({ retryAfter: untilApril })

    // Both give a part of the estimate, and the credits get back first what it had too much.
    await credits.grant('both', 600)
    await month.limit('both', { rate: 700 })
    costing(350)
    await ask('both', prompt(800))
    expect(await used('both')).toEqual([1000, 50])
    await month.limit('both', { rate: -500 })
    costing(200)
    await ask('both', prompt(800))
    expect(await used('both')).toEqual([700, 50])
    // A denial by the credits takes nothing from the month.
    await expect(ask('both', prompt(900))).rejects.toMatchObject({ retryAfter: untilApril })
    expect(await used('both')).toEqual([700, 50])
    thinking.mockRejectedValueOnce(new app.Refused('overloaded'))
    await expect(ask('both', prompt(800))).rejects.toThrow('overloaded')
    expect(await used('both')).toEqual([700, 50])

    // What cannot be stored leaves the estimate charged.
    const stored = app.db.$client
    costing(20, () => void stored.exec('alter table completions rename to away'))
    await expect(ask('both', prompt(400))).rejects.toThrow()
    await stored.exec('alter table away rename to completions')
    expect(await used('both')).toEqual([1000, 150])

    // The month ends before the cost is known: it keeps its part, and the rest comes from the next month.
    await credits.grant('late', 600)
    await month.limit('late', { rate: 700 })
    costing(1400, () => at('2026-04-01T00:00:00Z'))
    await ask('late', prompt(800))
    expect(await used('late')).toEqual([600, 500])
    at('2026-04-30T23:59:59.999Z')
    costing(100, () => at('2026-05-01T00:00:00Z'))
    await ask('late', prompt(400))
    expect(await used('late')).toEqual([0, 500])
    thinking.mockRestore()
  })

  test('tokens and cents, settled together', async () => {
    const { summarise, monthlyTokens, cents } = await block<{
      summarise(org: string, run: () => Promise<{ tokens: number; cost: number }>): Promise<void>
      monthlyTokens: Quota
      cents: Credits
    }>('Tokens and cents, settled together')
    const used = () =>
      Promise.all([monthlyTokens, cents].map(async (limit) => (await limit.getRemaining('org')).used))
    const run = async () => ({ tokens: 5000, cost: 9 })
    await expect(summarise('org', run)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await used()).toEqual([0, 0])
    await cents.grant('org', 30)
    await summarise('org', run)
    expect(await used()).toEqual([5000, 9])
    const refused = new app.Refused('overloaded')
    await expect(summarise('org', () => Promise.reject(refused))).rejects.toBe(refused)
    expect(await used()).toEqual([5000, 9])
    await expect(summarise('org', () => Promise.reject(ROLLBACK))).rejects.toBe(ROLLBACK)
    expect(await used()).toEqual([9000, 21])
  })

  test('a warning mail at 80 %', async () => {
    const { send, sent } = await block<{ send(org: string, rate: number): Promise<void>; sent: Quota }>(
      'A warning mail at 80 %',
    )
    const mails = async (org: string) =>
      (await app.db.select().from(app.mails).where(eq(app.mails.org, org)))
        .toSorted((one, other) => one.until.getTime() - other.until.getTime() || one.share - other.share)
        .map(({ share, until }) => `${share} ${until.toISOString().slice(0, 10)}`)
    await send('org', 78)
    await send('org', 1)
    expect(await mails('org')).toEqual([])

    // The table of messages is away: all is rolled back, and nothing was crossed.
    await app.db.$client.exec('alter table messages rename to away')
    await expect(send('org', 1)).rejects.toThrow()
    await app.db.$client.exec('alter table away rename to messages')
    expect([await stored('messages', 'org'), await mails('org')]).toEqual([79, []])

    await Promise.allSettled(Array.from({ length: 30 }, () => send('org', 1)))
    const warnings = ['0.8 2026-04-01', '1 2026-04-01']
    expect(await mails('org')).toEqual(warnings)
    expect([await stored('messages', 'org'), await app.db.$count(app.messages)]).toEqual([100, 23])

    await sent.limit('org', { rate: -50 })
    for (const rate of [40, 10]) await send('org', rate)
    expect(await mails('org')).toEqual(warnings)

    // The last call does not fit, and no call crosses the whole limit.
    for (let messages = 0; messages < 14; messages++) await send('sevens', 7)
    expect(await mails('sevens')).toEqual(['0.8 2026-04-01'])
    const denied = await Promise.allSettled([1, 2, 3].map(() => send('sevens', 7)))
    expect(denied.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
    expect(await mails('sevens')).toEqual(warnings)
    await send('sevens', 2)
    expect(await mails('sevens')).toEqual(warnings)
    await expect(send('large', 101)).rejects.toMatchObject({ retryAfter: Infinity })
    expect(await mails('large')).toEqual([])

    at('2026-04-01T00:00:00Z')
    await send('org', 80)
    expect(await mails('org')).toEqual([...warnings, '0.8 2026-05-01'])
  })

  test('an admin page, sorted by the share that is used', async () => {
    const { biggest, pages } = await block<{
      biggest(page: number, size?: number): Promise<{ org: string; share: number }[]>
      pages: Quota
    }>('An admin page, sorted by the share that is used')
    await app.db.delete(app.orgs)
    const uses = { a: 100, b: 900, c: 1000, d: 1200, e: 0 } as const
    for (const [id, rate] of Object.entries(uses)) {
      await newOrg(id, id === 'c' ? 'business' : 'team', '2026-01-01T00:00:00Z')
      if (rate > 0) await pages.limit(id, { rate, force: true })
    }
    const shares = { d: 1.2, b: 0.9, c: 0.2, a: 0.1, e: 0 }
    const sorted = Object.entries(shares).map(([org, share]) => ({ org, share }))
    expect(await biggest(0)).toEqual(sorted)
    expect(await biggest(1, 2)).toEqual(sorted.slice(2, 4))
    at('2026-04-01T00:00:00Z')
    expect((await biggest(0)).map(({ share }) => share)).toEqual([0, 0, 0, 0, 0])
  })

  test('an invoice for each month', async () => {
    const { print, closeMonths } = await block<{
      print(org: string, pages: number): Promise<void>
      closeMonths(): Promise<void>
    }>('An invoice for each month')
    const lines = async () => {
      const all = await app.db.select().from(app.invoiceLines).orderBy(app.invoiceLines.start)
      return all.map(({ org, start, used }) => `${org} ${start.toISOString().slice(0, 10)} ${used}`)
    }
    await print('stays', 30)
    await print('stays', 12)
    await print('leaves', 7)
    await closeMonths()
    expect(await lines()).toEqual([])

    at('2026-04-02T00:00:00Z')
    // The lines are away: the charge is rolled back with them, and March is reported again.
    await app.db.$client.exec('alter table invoice_lines rename to away')
    await expect(print('stays', 1)).rejects.toThrow()
    await expect(closeMonths()).rejects.toThrow()
    await app.db.$client.exec('alter table away rename to invoice_lines')
    await print('stays', 5)
    expect(await lines()).toEqual(['stays 2026-03-01 42'])
    await closeMonths()
    await closeMonths()
    expect(await lines()).toEqual(['stays 2026-03-01 42', 'leaves 2026-03-01 7'])

    // A bill that fails stays for the next run, and stops no other.
    for (const org of ['owes', 'pays', 'quits']) await print(org, 1)
    at('2026-05-01T00:00:00Z')
    await app.db.$client.exec("alter table invoice_lines add constraint solvent check (org <> 'owes')")
    const report = closeMonths()
    await expect(report).rejects.toThrow('1 customers were not billed.')
    await expect(report).rejects.toMatchObject({ errors: [{ message: 'owes was not billed.' }] })
    await expect(print('owes', 1)).rejects.toThrow()
    const others = ['stays 2026-04-01 5', 'pays 2026-04-01 1', 'quits 2026-04-01 1']
    expect((await lines()).slice(2).toSorted()).toEqual(others.toSorted())
    await app.db.$client.exec('alter table invoice_lines drop constraint solvent')
    await closeMonths()
    expect((await lines()).slice(2).toSorted()).toEqual(['owes 2026-04-01 1', ...others].toSorted())
    at('2026-06-01T00:00:00Z')
    await closeMonths()
    expect(await lines()).toHaveLength(6)

    // From the month to the year and back: two periods begin on the 1st of January, and each is billed once.
    at('2027-01-10T00:00:00Z')
    const yearly = { limiter: calendarWindow(1000, 'year'), prefix: 'prints', durable: true } as const
    const prints = new Quota({ db: app.db, ...yearly, keepEnded: true })
    for (const org of ['moves', 'a', 'z']) await print(org, 5)
    at('2027-02-01T00:00:00Z')
    await closeMonths()
    await prints.limit('moves', { rate: 7 })
    await print('moves', 3)
    await print('moves', 4)
    await closeMonths()
    const from2027 = (await lines()).filter((line) => line.includes(' 2027-01-01 '))
    expect(from2027.toSorted()).toEqual([
      'a 2027-01-01 5',
      'moves 2027-01-01 5',
      'moves 2027-01-01 7',
      'z 2027-01-01 5',
    ])
    expect(await stored('prints', 'moves')).toBe(7)
  })
})

describe('the recipes for billing', () => {
  test('an upgrade, prorated', async () => {
    type Plan = 'team' | 'business'
    type Account = { id: string; plan: Plan; changed?: { from: Plan; at: Date } }
    const { run, priceOf } = await block<{
      run(account: Account, rate: number): Promise<LimitResult>
      priceOf(account: Account): number
    }>('An upgrade, prorated')
    at('2026-04-05T00:00:00Z')
    expect(await run({ id: 'org', plan: 'team' }, 900)).toMatchObject({ limit: 1000, remaining: 100 })
    at('2026-04-11T00:00:00Z')
    const upgraded: Account = { id: 'org', plan: 'business', changed: { from: 'team', at: new Date() } }
    expect(await run(upgraded, 2000)).toMatchObject({ limit: 3000, remaining: 100 })
    await expect(run(upgraded, 101)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(priceOf(upgraded)).toBe(4000)
    at('2026-04-30T23:59:59.999Z')
    await expect(run(upgraded, 101)).rejects.toBeInstanceOf(app.QuotaExceeded)
    // The clock of this process goes fast or slow: that of the database decides.
    const ofProcess = vi.spyOn(Date, 'now').mockReturnValue(ms('2026-05-01T00:00:01Z'))
    await expect(run(upgraded, 101)).rejects.toBeInstanceOf(app.QuotaExceeded)
    at('2026-05-01T00:00:00Z')
    ofProcess.mockReturnValue(ms('2026-04-30T23:59:59Z'))
    expect(await run(upgraded, 1)).toMatchObject({ limit: 4000, remaining: 3999 })
    ofProcess.mockRestore()
    expect(priceOf({ id: 'org', plan: 'team' })).toBe(0)
  })

  test('an organization, a team and a member', async () => {
    const { call } = await block<{
      call(org: string, team: string, member: string, rate: number): Promise<object>
    }>('An organization, a team and a member')
    expect(await call('acme', 'a', 'ada', 90)).toEqual({ success: true, remaining: 10, deniedBy: [] })
    expect(await call('acme', 'a', 'ada', 20)).toMatchObject({ success: false, deniedBy: ['seats-member'] })
    for (const member of ['bob', 'cyd', 'dee', 'eve', 'fay']) await call('acme', 'a', member, 100)
    expect(await call('acme', 'a', 'gil', 20)).toMatchObject({ success: false, deniedBy: ['seats-team'] })
    for (const member of ['hal', 'ivy', 'joe', 'kim']) await call('acme', 'b', member, 100)
    const over = ['seats-org', 'seats-member']
    expect(await call('acme', 'b', 'ada', 30)).toMatchObject({ success: false, deniedBy: over })
    expect(await stored('seats-org', 'acme')).toBe(990)
    expect(await call('globex', 'a', 'ada', 90)).toMatchObject({ success: true, remaining: 10 })
  })

  test('overage after the included units', async () => {
    const { record, closeMonths, overage } = await block<{
      record(org: string, minutes: number): Promise<readonly unknown[]>
      closeMonths(): Promise<void>
      overage: Quota
    }>('Overage after the included units')
    const lines = async () => {
      const all = await app.db.select().from(app.invoiceLines).orderBy(app.invoiceLines.id)
      return all.filter(({ org }) => org.startsWith('caller')).map(({ org, used }) => `${org} ${used}`)
    }
    expect(await record('caller', 900)).toEqual([])
    expect(await record('caller', 300)).toEqual([])
    expect(await record('caller', 299)).toEqual([])
    expect(await record('caller', 1)).toEqual([{ used: 500 }])
    expect(await stored('included-minutes', 'caller')).toBe(1000)
    expect(await overage.getRemaining('caller')).toMatchObject({ used: 500, remaining: Infinity })
    await record('caller b', 1001)
    await record('caller c', 10)
    at('2026-04-02T00:00:00Z')
    // A call bills the last month if it needs overage, and the closing bills the others.
    await record('caller', 1200)
    expect(await lines()).toEqual(['caller 500'])
    await closeMonths()
    expect(await lines()).toEqual(['caller 500', 'caller b 1'])
    at('2026-05-02T00:00:00Z')
    await closeMonths()
    await closeMonths()
    expect(await lines()).toEqual(['caller 500', 'caller b 1', 'caller 200'])
  })

  test('overage up to a second bound, by many at once, with retries, rollbacks and at the end of a month', async () => {
    const { record, included, overage } = await block<{
      record(org: string, minutes: number): Promise<readonly unknown[]>
      included: Quota
      overage: Quota
    }>('Overage after the included units')
    const sources = [
      { ratelimit: included, key: 'soft' },
      { ratelimit: overage, key: 'soft', limiter: calendarWindow(200, 'month') },
    ]
    const used = async () =>
      Promise.all([included, overage].map(async (each) => (await each.getRemaining('soft')).used))
    at('2026-03-31T23:59:59.999Z')
    await Promise.all(Array.from({ length: 10 }, () => record('soft', 110)))
    expect(await used()).toEqual([1000, 100])
    const undone = app.db.transaction(async (tx) => {
      expect(await spend(sources, { rate: 50, tx })).toMatchObject({ success: true, granted: [0, 50] })
      tx.rollback()
    })
    await expect(undone).rejects.toThrow()
    for (const repeated of [undefined, true]) {
      const answer = await spend(sources, { rate: 90, once: { id: 'call', for: '35d' } })
      expect(answer).toMatchObject({ success: true, granted: repeated ? [0, 0] : [0, 90] })
      expect('repeated' in answer).toBe(repeated === true)
    }
    // The second bound denies until the next month, which begins in a millisecond.
    expect(await spend(sources, { rate: 11 })).toMatchObject({ success: false, retryAfter: 1 })
    expect(await used()).toEqual([1000, 190])
    at('2026-04-01T00:00:00Z')
    const next = await spend(sources, { rate: 1100 })
    expect(next).toMatchObject({ success: true, granted: [1000, 100] })
    expect(next.results[1]).toMatchObject({ limit: 200, remaining: 100, ended: { used: 190 } })
  })

  test('credits that top themselves up', async () => {
    const { use, paid, wallet } = await block<{
      use(org: string, rate: number): Promise<void>
      paid(payment: { id: string; org: string; credits: number }): Promise<void>
      wallet: Credits
    }>('Credits that top themselves up')
    await wallet.grant('org', 500)
    let [spent, granted] = [0, 500]
    for (let round = 0; round < 3; round++) {
      for (; granted - spent > 100; spent += 50) await use('org', 50)
      const orders = await app.db.select().from(app.topUps)
      expect(orders).toHaveLength(round + 1)
      const { id, org, credits } = orders[round] as (typeof orders)[number]
      // The provider says it twice.
      for (const _ of [1, 2]) await paid({ id: `order ${id}`, org, credits })
      granted += 1000
      expect(await wallet.getRemaining('org')).toMatchObject({ limit: granted, used: spent })
    }
    await use('org', 1000)
    await expect(use('org', 1000)).rejects.toBeInstanceOf(app.QuotaExceeded)
    expect(await app.db.$count(app.topUps)).toBe(4)
  })

  test('a ledger', async () => {
    const { prepaid } = await block<{ prepaid: Credits }>('A ledger')
    await prepaid.grant('org', 500, { once: { id: 'payment:7', for: '90d' } })
    await prepaid.limit('org', { rate: 40 })
    await prepaid.limit('org', { rate: 4000 })
    const reserved = await prepaid.reserve('org', { rate: 100 })
    if (!reserved.success) throw new Error('denied')
    await reserved.commit(130)
    const rows = await app.db.select().from(app.ledgerLines)
    expect(rows.map(({ kind, units, remaining, eventId }) => [kind, units, remaining, eventId])).toEqual([
      ['grant', 500, 500, 'payment:7'],
      ['charge', 40, 460, null],
      ['reserve', 100, 360, null],
      ['settle', 30, 330, null],
    ])
  })
})

test('every block of the page was run', () => {
  expect([...taken].toSorted()).toEqual(written.toSorted())
})
