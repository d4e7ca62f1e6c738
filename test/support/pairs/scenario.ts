import type { Entry } from 'drizzle-ratelimit/ledger'
import { expect } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { Ratelimit } from '../../../src/index.ts'
import { Quota } from '../../../src/quota/index.ts'
import { TestClock } from '../clock.ts'
import type { TestDatabase } from '../databases.ts'
import { ACTS, type Act, CHARGES, type Charge, type Ground, type Untyped } from './calls.ts'
import { EACH_ACT, EACH_CHARGE, EACH_LIMIT, withNeed } from './cover.ts'
import { LIMITS, OPTIONS, PLAN, PREPAID, WORDS } from './features.ts'

// A scenario charges a key of ten units until it is denied, and makes another call in between. A model of
// units, as simple as possible, says what each call has to do.

export interface Scenario extends Ground {
  readonly charge: Charge
  readonly act: Act | undefined
  readonly entries: Entry[]
  readonly hasTx: boolean
  /** The words of the charge at this place. */
  wordsOf(place: number): Untyped
}

const UNITS = 10
const RATE = 4

let prefixes = 0

/** The limiters of a scenario. */
export function scenarioOf(features: readonly string[], db: Untyped): Scenario {
  const all = features.flatMap((each) => withNeed(each, features))
  const pick = (kind: readonly string[]) => kind.filter((each) => all.includes(each))
  const [limit, charge, act] = [EACH_LIMIT, EACH_CHARGE, EACH_ACT].map((kind) => pick(kind)[0] ?? '')
  if (!limit || !charge) throw new Error('A scenario needs a limit and a charge.')
  const entries: Entry[] = []
  const clock = new TestClock()
  const prefix = `pairs ${++prefixes}`
  const common = { db, clock: clock.now, cleanupProbability: 0 }
  const options: Untyped[] = pick(Object.keys(OPTIONS)).map((name) => OPTIONS[name]?.(entries))
  const use = options.flatMap((given) => given.use ?? [])
  const prepaid = PREPAID[limit]
  const own = { prefix, durable: false, ...(prepaid ?? { limiter: LIMITS[limit]?.(UNITS) }) }
  const config: Untyped = Object.assign({ ...common, ...own }, ...options, { use })
  const Class = all.includes('Quota') ? Quota : Ratelimit
  const words = pick(Object.keys(WORDS))
  const wordsOf = (place: number) => Object.assign({}, ...words.map((name) => WORDS[name]?.(limit, place)))
  const { limiter } = wordsOf(0)
  const wide = { limiter: Ratelimit.fixedWindow(1000, '1h'), prefix: `${prefix} other` }
  const units = limiter ? PLAN : UNITS
  return {
    ...{ limit, charge: CHARGES[charge] as Charge, act: ACTS[act ?? ''], entries, wordsOf },
    ...{ key: 'key', config, plan: limiter ? { limiter } : {}, hasTx: words.includes('tx') },
    capacity: limit === 'unlimited' ? Number.POSITIVE_INFINITY : units,
    quota: prepaid ? new Credits(config) : new Class(config),
    other: new Ratelimit({ ...common, ...wide, use: use.filter(({ name }: Untyped) => name === 'citus') }),
    advance: (ms) => clock.advance(ms),
    inTransaction: (work) => db.transaction(work),
  }
}

/** Makes the call that charges, in a transaction if the scenario has one. */
export function chargeIn(on: Scenario, place: number): ReturnType<Charge['run']> {
  const words = on.wordsOf(place)
  const call = (more: object) => on.charge.run(on, RATE, { ...words, ...more }, place)
  return on.hasTx ? on.inTransaction((tx) => call({ tx })) : call({})
}

/** What the model says of a charge. */
interface Due {
  readonly isDenied: boolean
  readonly isRepeated: boolean
  /** The units that stay charged. */
  readonly kept: number
}

/** What is charged so far, also to the other limiter, and the ids that were used. */
interface Model {
  used: number
  others: number
  readonly ids: Set<string>
}

function dueOf(on: Scenario, { used, ids }: Model, place: number): Due {
  const { force, atLeast, once } = on.wordsOf(place)
  const left = Math.max(on.capacity - used, 0)
  const mayTakeLess = on.charge.isHelped === true || (atLeast !== undefined && left > 0)
  const granted = force || left >= RATE ? RATE : mayTakeLess ? left : 0
  const isRepeated = ids.has(once?.id)
  const isDenied = granted === 0 && !on.charge.isHelped && !isRepeated
  const kept = isDenied || isRepeated || on.limit === 'unlimited' ? 0 : granted - (on.charge.givesBack ?? 0)
  return { isDenied, isRepeated, kept }
}

const STORED = ['rate_limit_ephemeral', 'rate_limit_durable', 'pairs_ephemeral', 'pairs_durable']
  .map((table) => `select prefix, key, xmin::text, ctid::text from ${table} where prefix like $1`)
  .join(' union all ')

/** The rows with their versions, so that even writing the same again would show. */
async function storedBy({ config }: Scenario, database: TestDatabase): Promise<string[]> {
  const rows = await database.rows(STORED, [`%${config.prefix}%`])
  return rows.map((row) => JSON.stringify(row)).toSorted()
}

/** Runs a scenario and compares it with the model. */
export async function run(features: readonly string[], database: TestDatabase): Promise<void> {
  const on = scenarioOf(features, database.db)
  const { limit, quota, key, plan, config, act } = on
  if (limit === 'Credits') await quota.grant(key, on.capacity)
  if (limit === 'dated') await quota.grant(key, on.capacity, { id: 'first' })
  const model: Model = { used: 0, others: 0, ids: new Set() }
  for (const place of [0, 1]) await chargeBy(model, on, place, database)
  if (act) {
    checkEntries(on, model.used)
    model.used = await act(on, model.used)
  }
  const usedBefore = act ? model.used : 0
  if (act) on.entries.length = 0
  const denials = config.inMemoryBlock ? 2 : 1
  for (
    let place = 2, denied = 0;
    denied < denials && place < (act ? MOST_AFTER_ACT : MOST_CHARGES);
    place++
  ) {
    denied += Number(await chargeBy(model, on, place, database))
  }
  checkEntries(on, model.used - usedBefore)
  await quota.close()
  expect((await quota.getRemaining(key, plan)).used).toBeCloseTo(model.used, 2)
  expect((await on.other.getRemaining(key)).used).toBe(model.others)
}

/** So many until two are denied, if one takes what is left: after a reset, and without one. */
const [MOST_AFTER_ACT, MOST_CHARGES] = [7, 5]

/** Makes a charge and compares it with the model. Returns whether it was denied. */
async function chargeBy(model: Model, on: Scenario, place: number, database: TestDatabase): Promise<boolean> {
  const { limit, quota, key, plan, config, charge } = on
  const { dryRun = false } = config
  const { isDenied, isRepeated, kept } = dueOf(on, model, place)
  const { force, once } = on.wordsOf(place)
  if (once && !isDenied) model.ids.add(once.id)
  const before = isDenied ? await storedBy(on, database) : []
  const { answer, ...charged } = await chargeIn(on, place)
  const { success, wouldDeny, repeated } = answer
  expect([success, wouldDeny !== undefined, repeated === true]).toEqual([
    !isDenied || dryRun,
    isDenied && dryRun,
    isRepeated,
  ])
  if (limit !== 'unlimited') expect(charged.kept).toBe(kept)
  model.used += kept
  model.others += charged.others
  if (!force) expect(model.used).toBeLessThanOrEqual(on.capacity)
  // It takes and gives back what no call has used yet.
  if (uses(on, 'prefetch')) return isDenied
  const writes = dryRun && (charge.isNamed || charged.others > 0)
  if (isDenied && !writes) expect(await storedBy(on, database)).toEqual(before)
  const look = await quota.getRemaining(key, plan)
  expect(look.used).toBeCloseTo(model.used)
  if (answer.remaining !== undefined && !charge.givesBack) expect(answer.remaining).toBe(look.remaining)
  return isDenied
}

function uses({ config }: Scenario, layer: string): boolean {
  return config.use.some(({ name }: Untyped) => name === layer)
}

/** The entries of charges and refunds add up to what is charged. */
function checkEntries(on: Scenario, used: number): void {
  if (!uses(on, 'ledger')) return
  const units = on.entries.reduce((sum, entry) => (entry.kind === 'grant' ? sum : sum + entry.units), 0)
  expect(units).toBeCloseTo(used)
}
