import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { TestClock } from '../../support/clock.ts'
import { useDatabase } from '../../support/databases.ts'
import { runs } from '../../support/runs.ts'

// Random calls on credits, compared with a model that keeps a list of grants.

const database = useDatabase()
const HOUR_MS = 3_600_000

interface Grant {
  readonly id: string
  readonly amount: number
  readonly priority: number
  readonly granted: number
  used: number
  expires: number
  isVoided: boolean
}

/** What was taken and is not settled yet: how much of which grant, in the order of the payment. */
type Paid = readonly (readonly [Grant, number])[]

class Model {
  readonly grants: Grant[] = []
  debt = 0

  live(now: number): Grant[] {
    const live = this.grants.filter(({ expires }) => expires > now)
    return live.toSorted(
      (a, b) =>
        a.priority - b.priority || a.expires - b.expires || a.granted - b.granted || (a.id < b.id ? -1 : 1),
    )
  }

  left(now: number): number {
    return this.live(now).reduce((sum, { amount, used }) => sum + amount - used, -this.debt)
  }

  /** Undefined if it is denied. */
  take(now: number, rate: number, force: boolean): Paid | undefined {
    const isEnough = rate <= this.left(now)
    if (!isEnough && !force) return undefined
    // A call that is not forced pays the debt too.
    const paysDebt = !force
    let rest = rate + (paysDebt ? this.debt : 0)
    if (paysDebt) this.debt = 0
    const paid = this.live(now).map((grant) => {
      const share = Math.min(rest, grant.amount - grant.used)
      grant.used += share
      rest -= share
      return [grant, share] as const
    })
    this.debt += rest
    return paid
  }

  giveBack(now: number, amount: number): number {
    let rest = amount - Math.min(this.debt, amount)
    this.debt -= amount - rest
    for (const grant of this.live(now).toReversed()) {
      const share = Math.min(rest, grant.used)
      grant.used -= share
      rest -= share
    }
    return amount - rest
  }

  release(now: number, paid: Paid, amount: number): number {
    let [rest, returned] = [amount, 0]
    for (const [grant, share] of paid.toReversed()) {
      const planned = Math.min(rest, share)
      rest -= planned
      if (grant.expires <= now) continue
      const back = Math.min(planned, grant.used)
      grant.used -= back
      returned += back
    }
    return returned
  }
}

const ids = fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f')
const amounts = fc.integer({ min: 1, max: 30 })
const action = fc.oneof(
  fc.record({
    do: fc.constant('grant' as const),
    id: ids,
    amount: amounts,
    priority: fc.integer({ min: 0, max: 2 }),
    hours: fc.option(fc.integer({ min: 1, max: 6 })),
  }),
  fc.record({ do: fc.constant('take' as const), rate: amounts, force: fc.boolean() }),
  fc.record({
    do: fc.constant('at once' as const),
    rates: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 9 }),
  }),
  fc.record({ do: fc.constant('part' as const), rate: amounts }),
  fc.record({ do: fc.constant('give back' as const), amount: amounts }),
  fc.record({ do: fc.constant('reserve' as const), rate: amounts, actual: fc.integer({ min: 0, max: 30 }) }),
  fc.record({ do: fc.constant('void' as const), id: ids }),
  fc.record({ do: fc.constant('wait' as const), hours: fc.integer({ min: 1, max: 3 }) }),
)

let keys = 0

test('random calls answer as a list of grants does', { timeout: 60_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
      const [clock, model, key] = [new TestClock(), new Model(), `key ${++keys}`]
      const credits = new Credits({
        ...{ db: database.db, dated: true, prefix: 'model', durable: true },
        ...{ clock: clock.now, cleanupProbability: 0 },
      })
      let open: { settle(): Promise<void> } | undefined
      for (const each of actions) {
        const now = clock.ms
        if (each.do === 'wait') clock.advance(each.hours * HOUR_MS)
        else if (each.do === 'grant') {
          const { id, amount, priority, hours } = each
          const known = model.grants.some((grant) => grant.id === id)
          const expires = hours === null ? Infinity : now + hours * HOUR_MS
          if (!known) {
            model.grants.push({ id, amount, priority, granted: now, used: 0, expires, isVoided: false })
          }
          const given = hours === null ? {} : { expires: `${hours}h` as const }
          const answer = await credits.grant(key, amount, { id, priority, ...given })
          expect(answer.repeated === true).toBe(known)
        } else if (each.do === 'take') {
          const { rate, force } = each
          const { success } = await credits.limit(key, { rate, force })
          expect(success).toBe(model.take(now, rate, force) !== undefined)
        } else if (each.do === 'at once') {
          // Those with equal rates that follow each other are decided together.
          const answers = await Promise.all(each.rates.map((rate) => credits.limit(key, { rate })))
          for (const [place, rate] of each.rates.entries()) {
            expect(answers[place]?.success).toBe(model.take(now, rate, false) !== undefined)
            const left = Math.max(model.left(now), 0)
            if (answers[place]?.success) expect(answers[place]?.remaining).toBe(left)
          }
        } else if (each.do === 'part') {
          const part = Math.min(model.left(now), each.rate)
          const answer = await credits.limit(key, { rate: each.rate, atLeast: 1 })
          expect(answer.success ? answer.granted : 0).toBe(Math.max(part, 0))
          if (part > 0) model.take(now, part, false)
        } else if (each.do === 'give back') {
          const answer = await credits.limit(key, { rate: -each.amount })
          expect(answer).toMatchObject({ success: true, returned: model.giveBack(now, each.amount) })
        } else if (each.do === 'void') {
          const grant = model.live(now).find(({ id }) => id === each.id)
          expect(await credits.voidGrant(key, each.id)).toBe(grant ? grant.amount - grant.used : 0)
          if (grant) Object.assign(grant, { expires: now, isVoided: true })
        } else {
          await open?.settle()
          const { rate, actual } = each
          const reserved = await credits.reserve(key, { rate })
          const paid = model.take(now, rate, false)
          expect(reserved.success).toBe(paid !== undefined)
          // It is settled when the next one is made, so other calls come between.
          open = reserved.success
            ? {
                settle: async () => {
                  const answer = await reserved.commit(actual)
                  if (actual > rate) model.take(clock.ms, actual - rate, true)
                  else if (actual < rate)
                    expect(answer.returned).toBe(model.release(clock.ms, paid ?? [], rate - actual))
                },
              }
            : undefined
        }
        const left = model.left(clock.ms)
        expect((await credits.getRemaining(key)).remaining).toBe(Math.max(left, 0))
      }
      await open?.settle()
      const rows = await credits.grants(key)
      const expected = model.grants.map(({ id, amount, used, priority, granted, expires, isVoided }) => ({
        ...{ id, amount, used, priority, granted, expires },
        left: expires > clock.ms ? amount - used : 0,
        ...(expires > clock.ms ? {} : { ended: isVoided ? 'voided' : 'expired' }),
      }))
      const byId = (one: { id: string }, other: { id: string }) => (one.id < other.id ? -1 : 1)
      expect(rows.toSorted(byId)).toEqual(expected.toSorted(byId))
    }),
    runs(25),
  )
})
