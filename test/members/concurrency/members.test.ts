import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import { Members } from 'drizzle-ratelimit/members'
import { expect, test } from 'vitest'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { times } from '../../support/runs.ts'

const database = useDatabase()

function processes(count: number, prefix: string, limit: number, window?: number): Members[] {
  return Array.from({ length: count }, () => {
    const { db } = database.connect(2)
    return new Members({ db, prefix, limit, window, timeout: false, cleanupProbability: 1 })
  })
}

test('12 processes add different members of new keys: never more than the limit', async () => {
  const all = processes(12, 'members of many', 5)
  for (let round = 0; round < times(10); round++) {
    const key = `account ${round}`
    const adding = all.flatMap((each, place) => [0, 1].map((n) => each.add(key, `device ${place} ${n}`)))
    const answers = await Promise.all(adding)
    const added = answers.flatMap((answer) => (answer.success ? [answer] : []))
    expect(added.map(({ remaining }) => remaining).toSorted()).toEqual([0, 1, 2, 3, 4])
    expect(await all[0]?.list(key)).toHaveLength(5)
  }
})

test('one member that all processes add is new once', async () => {
  const all = processes(12, 'members that are one', 1)
  for (let round = 0; round < times(10); round++) {
    const answers = await Promise.all(all.map((each) => each.add(`account ${round}`, 'phone')))
    expect(answers.filter((answer) => answer.success)).toHaveLength(12)
    expect(answers.filter((answer) => answer.success && answer.isNew)).toHaveLength(1)
  }
})

test('at the ends of their windows members are renewed or replaced, and never both', async () => {
  const [window, limit, devices] = [40, 3, 6]
  const all = processes(devices, 'members at the end', limit, window)
  const added: { member: number; at: number }[] = []
  const until = performance.now() + times(3000)
  await Promise.all(
    all.map(async (each, member) => {
      while (performance.now() < until || added.length <= 20) {
        const answer = await each.add('key', `device ${member}`)
        if (answer.success) added.push({ member, at: answer.reset - window })
        // Sometimes just before the end, sometimes just after it.
        await sleep(answer.success ? window - 4 + Math.random() * 8 : Math.min(answer.retryAfter, window))
      }
    }),
  )
  added.sort((one, other) => one.at - other.at)
  expect(added.length).toBeGreaterThan(20)
  for (const [place, { at }] of added.entries()) {
    const within = added.slice(0, place + 1).filter((each) => each.at > at - window)
    expect(new Set(within.map(({ member }) => member)).size).toBeLessThanOrEqual(limit)
  }
})

test.each(['read committed', 'repeatable read', 'serializable'] as const)(
  'transactions at %s never see too few members',
  async (isolationLevel) => {
    const limit = 3
    const prefix = `members, ${isolationLevel}`
    const [own] = processes(1, prefix, limit) as [Members]
    for (let round = 0; round < 5; round++) {
      const key = `account ${round}`
      // In half of the rounds the key has a member already, and so its head.
      const before = round % 2
      if (before) await own.add(key, 'first')
      const adding = Array.from({ length: 6 }, async (_, place) => {
        const { db } = database.connect(1)
        const each = new Members({ db, prefix, limit, cleanupProbability: 0 })
        const work = async () =>
          db.transaction(
            async (tx) => {
              await each.list('another key', { tx }) // takes the snapshot
              await sleep(5)
              return (await each.add(key, `device ${place}`, { tx })).success
            },
            { isolationLevel },
          )
        return work().catch((error) => {
          expect(error).toMatchObject({ code: 'SERIALIZATION_FAILURE' })
          return false
        })
      })
      const added = (await Promise.all(adding)).filter(Boolean).length
      expect(added).toBeGreaterThan(0)
      expect(added + before).toBeLessThanOrEqual(limit)
      expect(await own.list(key)).toHaveLength(added + before)
    }
  },
)

test('a member that is added again while another one comes counts still', async () => {
  const { db } = database.connect(1)
  const start = Date.now()
  let now = start
  const clock = () => new Date(now)
  const config = { prefix: 'members again', limit: 1, window: '1h', clock, cleanupProbability: 0 } as const
  const account = new Members({ db: database.connect(2).db, ...config })
  await account.add('key', 'phone')
  now += 3_600_000
  let adding: ReturnType<Members['add']> | undefined
  await db.transaction(async (tx) => {
    // As `add` does in the last millisecond of the window.
    await tx.execute(sql`update rate_limit_durable set last_refill = ${new Date(now - 1).toISOString()}
      where prefix = 'members again' and key <> 'key/'`)
    adding = account.add('key', 'laptop')
    await untilWaiting(database)
  })
  expect(await adding).toMatchObject({ success: false, retryAfter: 3_599_999 })
})

test('a member whose window has ended while it waited for its row is new', async () => {
  const { db } = database.connect(1)
  const [account] = processes(1, 'members late', 1, 300) as [Members]
  await account.add('key', 'phone')
  let adding: ReturnType<Members['add']> | undefined
  await db.transaction(async (tx) => {
    // As `add` of another member does.
    await tx.execute(sql`select from rate_limit_durable where prefix = 'members late' for update`)
    adding = account.add('key', 'phone')
    await untilWaiting(database)
    await sleep(400)
  })
  expect(await adding).toMatchObject({ success: true, isNew: true })
})

test('transactions that add, renew and remove members of one key wait for each other, without a deadlock', async () => {
  const all = processes(8, 'members in line', 3, 60_000)
  await Promise.all(
    all.map(async (each, place) => {
      const { db } = database.connect(1)
      for (let round = 0; round < times(10); round++) {
        await each.add('key', `device ${(place + round) % 4}`)
        await db.transaction(async (tx) => {
          await each.add('key', `device ${(place + round) % 5}`, { tx })
          await each.remove('key', `device ${(place + 2 * round) % 5}`, { tx })
          await each.add('key', `device ${(place + 3 * round) % 5}`, { tx })
        })
        expect((await each.list('key')).length).toBeLessThanOrEqual(3)
      }
    }),
  )
})

test('a transaction that is older than two windows does not miss who was added again', async () => {
  const clock = new TestClock(1_000_000_000)
  const { db } = database.connect(3)
  const own = { db, clock: clock.now, timeout: false, cleanupProbability: 0 } as const
  const account = new Members({ ...own, prefix: 'members of old', limit: 1, window: '1h' })
  const old = db.transaction(
    async (tx) => {
      await tx.execute(sql`select count(*) from rate_limit_durable`)
      await account.add('key', 'kept')
      for (let times = 0; times < 4; times++) {
        clock.advance(1_800_000)
        await account.add('key', 'kept')
      }
      await account.cleanup()
      return account.add('key', 'other', { tx })
    },
    { isolationLevel: 'repeatable read' },
  )
  await expect(old).rejects.toMatchObject({ code: 'SERIALIZATION_FAILURE' })
  expect((await account.list('key')).map(({ member }) => member)).toEqual(['kept'])
})
