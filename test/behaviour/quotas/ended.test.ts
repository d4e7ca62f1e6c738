import { describe, expect, test } from 'vitest'
import { type LimitResult, limitAll, Ratelimit } from '../../../src/index.ts'
import { allowed } from '../../support/allowed.ts'
import { useDatabase } from '../../support/databases.ts'
import { kinds, quotaOn, TEN } from '../../support/ten.ts'
import { undone } from '../../support/undone.ts'

// The call that opens a period answers how the one before has ended. test/behaviour/answers/model.test.ts tests
// it in any sequence of calls and under any plans.

const database = useDatabase()
const periodic = kinds.filter(({ plan }) => plan.rules.endOf)

function endedIn(answer: LimitResult) {
  return answer.success ? answer.ended : undefined
}

describe.each(periodic)('$name', ({ algorithm, limiter }) => {
  async function afterOnePeriod(used: number, options = {}) {
    const { clock, quota } = quotaOn(database, limiter, options)
    const opened = await quota.limit('key', { rate: used, force: true })
    expect(endedIn(opened)).toBeUndefined()
    const { start = 0 } = await quota.getRemaining('key')
    clock.ms = opened.reset
    // Fixed windows do not know it.
    const reserved = limiter.algorithm.settled ? { reserved: 0 } : {}
    return { clock, quota, ended: { start, end: opened.reset, used, ...reserved } }
  }

  test.each([1, 10, 25])(
    'the first call after a period that used %d reports it, and no other call does',
    async (used) => {
      const { quota, ended } = await afterOnePeriod(used)
      expect(endedIn(await quota.limit('key'))).toEqual(ended)
      expect(await quota.limit('key')).not.toHaveProperty('ended')
    },
  )

  test('a call in the last millisecond of the period reports nothing', async () => {
    const { clock, quota, ended } = await afterOnePeriod(3)
    clock.advance(-1)
    expect(await quota.limit('key')).not.toHaveProperty('ended')
    clock.advance(1)
    expect(endedIn(await quota.limit('key'))).toEqual({ ...ended, used: 4 })
  })

  test('a denial, a look and a refund report nothing, and leave it to the next call', async () => {
    const { quota, ended } = await afterOnePeriod(3)
    for (const rate of [11, 0, -2]) expect(await quota.limit('key', { rate })).not.toHaveProperty('ended')
    expect(await quota.getRemaining('key')).not.toHaveProperty('ended')
    expect(endedIn(await quota.limit('key'))).toEqual(ended)
  })

  test('a forced call reports it, even with nothing left', async () => {
    const { quota, ended } = await afterOnePeriod(3)
    expect(endedIn(await quota.limit('key', { rate: 25, force: true }))).toEqual(ended)
  })

  test('a reservation reports it, or the commit that opens the next period', async () => {
    const { clock, quota, ended } = await afterOnePeriod(3)
    const reserved = allowed(await quota.reserve('key', { rate: 4 }))
    expect(reserved.ended).toEqual(ended)
    clock.ms = reserved.reset
    expect(endedIn(await reserved.commit(6))).toEqual({
      ...{ ...ended, start: ended.end, end: reserved.reset, used: 4 },
      ...(limiter.algorithm.settled ? { reserved: 4 } : {}),
    })
  })

  test('one of several calls at once reports it, also of several limiters', async () => {
    const { clock, quota, ended } = await afterOnePeriod(3)
    const other = new Ratelimit({ db: database.db, limiter, prefix: quota.prefix, clock: clock.now })
    const calls = Array.from({ length: 14 }, (_, i) =>
      (i % 2 ? quota : other).limit('key', { rate: i < 8 ? 1 : 2 }),
    )
    const told = (await Promise.all(calls)).filter(endedIn)
    expect(told.map(endedIn)).toEqual([ended])
  })

  test('after a rollback the next call reports it', async () => {
    const { quota, ended } = await afterOnePeriod(3)
    await undone(database.db, async (tx) => {
      expect(endedIn(await quota.limit('key', { tx }))).toEqual(ended)
    })
    expect(endedIn(await quota.limit('key'))).toEqual(ended)
  })

  test('limitAll reports it in the first answer for the row', async () => {
    const { quota, ended } = await afterOnePeriod(3)
    const request = { ratelimit: quota, key: 'key' }
    expect((await limitAll([request, { ...request, rate: 10 }])).results.map(endedIn)).toEqual([
      undefined,
      undefined,
    ])
    const { results } = await limitAll([request, { ratelimit: quota, key: 'new' }, request])
    expect(results.map(endedIn)).toEqual([ended, undefined, undefined])
  })

  test('limitAll reports nothing where it charges nothing, though the limit would allow its call', async () => {
    const { clock, quota, ended } = await afterOnePeriod(3)
    const common = { db: database.db, clock: clock.now, prefix: `${quota.prefix}, used up` }
    const usedUp = new Ratelimit({ ...common, limiter: Ratelimit.fixedWindow(1, '1h') })
    await usedUp.limit('key')
    const { results } = await limitAll([quota, usedUp].map((ratelimit) => ({ ratelimit, key: 'key' })))
    expect(results).toMatchObject([{ success: true }, { success: false }])
    expect(results[0]).not.toHaveProperty('ended')
    expect(endedIn(await quota.limit('key'))).toEqual(ended)
  })

  test('a dry run reports a period that it ended, but not by a call that it would deny', async () => {
    const { quota, ended } = await afterOnePeriod(3, { dryRun: true })
    expect(endedIn(await quota.limit('key', { rate: 11 }))).toBeUndefined()
    expect(endedIn(await quota.limit('key', { rate: 10 }))).toEqual(ended)
  })

  test('a row of another algorithm is not reported', async () => {
    for (const other of kinds.filter((each) => each.algorithm !== algorithm)) {
      const { clock, quota } = quotaOn(database, other.limiter)
      await quota.limit('key', { rate: 3 })
      clock.advance(90 * 86_400_000)
      expect(await quota.limit('key', { limiter })).not.toHaveProperty('ended')
    }
  })

  test('a row without a valid start is not reported', async () => {
    const { prefix, quota } = quotaOn(database, limiter)
    await database.script(`insert into rate_limit_ephemeral
      (prefix, key, count, prev_count, tokens, window_start, expires_at)
      select '${prefix}', 'key ' || n, 3, case n when 1 then 0 end, case n when 1 then 0 end, '-infinity', now()
      from generate_series(1, 2) as n`)
    for (const key of ['key 1', 'key 2']) {
      const answer = await quota.limit(key)
      expect(answer).toMatchObject({ success: true, remaining: 9 })
      expect(answer).not.toHaveProperty('ended')
    }
  })

  test('a reset, a sweep and another algorithm leave nothing to report', async () => {
    const [reset, swept, other] = [await afterOnePeriod(3), await afterOnePeriod(3), await afterOnePeriod(3)]
    await reset.quota.resetUsedTokens('key')
    expect(await reset.quota.limit('key')).not.toHaveProperty('ended')
    swept.clock.ms += 30 * 86_400_000
    expect(await swept.quota.cleanup()).toBe(1)
    expect(await swept.quota.limit('key')).not.toHaveProperty('ended')
    const others = periodic.map((each) => each.limiter).filter((each) => each !== limiter)
    for (const plan of [TEN['interval bucket'], TEN['sliding window'], ...others]) {
      expect(await other.quota.limit('key', { limiter: plan })).not.toHaveProperty('ended')
    }
  })
})

test('a limit without periods reports none', async () => {
  for (const { limiter } of kinds.filter(({ plan }) => !plan.rules.endOf)) {
    const { clock, quota } = quotaOn(database, limiter)
    await quota.limit('key')
    clock.advance(40 * 86_400_000)
    expect(await quota.limit('key')).not.toHaveProperty('ended')
  }
})
