import type { RateLimitTable } from '../../schema/index.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { distinct, mustHave } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { gateOf } from '../kernel/engine/gate.ts'
import { calledOn, type Handle } from '../kernel/engine/handles.ts'
import { lookAll } from '../kernel/engine/look-all.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { Limiter, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { paramsAt } from '../kernel/limits/limiter.ts'
import { checkLimiter } from '../kernel/options/validate.ts'
import { lookAtEach, lookAtPlans } from '../reports/usage-by-plan.ts'
import type { PlanOf } from '../shared/limiter-rows.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { MAX_PAGE } from '../shared/page.ts'
import { type Reading, readingIn, readRows } from '../shared/read-rows.ts'
import { inDigits } from '../shared/readable.ts'
import type { Held, KeysAsked, ShownKey, ShownKeys } from '../shared/shown.ts'
import {
  blockedStatement,
  hasRowStatement,
  MAX_FOUND,
  MAX_PLANS,
  MAX_READ,
  nearestStatement,
  someKeysStatement,
} from './sql/keys.ts'

// What the page reads of limits that have one row for a key.

/** The rows of a limiter. */
export interface KeyRows {
  readonly handle: Handle
  /** The plan of each key, if keys have plans. */
  readonly limiterOf: PlanOf | undefined
}

/** The keys nearest to their limit. None for an unlimited plan, which has no rows. */
export function nearestKeys(rows: KeyRows, asked: KeysAsked): Promise<ShownKeys> {
  const { limiter } = rows.handle.checker.terms
  if (rows.limiterOf) return nearestByPlan(readingIn(rows.handle.checker), rows.limiterOf, asked)
  if (limiter.stored) return nearestUnder(readingIn(rows.handle.checker), limiter, asked)
  return Promise.resolve({ keys: [], total: 0, full: 0 })
}

async function nearestUnder(reading: Reading, limiter: StoredLimiter, asked: KeysAsked): Promise<ShownKeys> {
  const { part, offset, size, now } = asked
  const name = `nearest ${limiter.algorithm.name} ${part !== ''}`
  const build = (table: RateLimitTable) => nearestStatement(table, limiter, part !== '')
  const params = paramsAt(limiter, now)
  const previousStart = limiter.periodAt?.((params['periodStart'] ?? 0) - 1).start ?? null
  const sent = { clock: now, previousStart, part, size, offset }
  const rows = distinct(await readRows(reading, name, build, sent, params), 'key', size)
  const own = rows.filter((row) => row['like'] === true).map((row) => ({ key: keyIn(row), limiter }))
  const usages = new Map((await lookAtEach(reading, own, now)).map((usage) => [usage.key, usage]))
  const number = (column: string) => Number(rows[0] ? mustHave(rows[0][column]) : 0)
  return {
    keys: rows.map((row) => {
      const usage = usages.get(keyIn(row))
      return usage ? shownKey(keyIn(row), usage) : { key: keyIn(row), used: exactNumber(row['counted']) }
    }),
    total: number('total'),
    full: number('nothing'),
    cut: cutOf(number('seen'), MAX_READ, part),
  }
}

/** The database does not know the plans, so the keys are put in order here. */
async function nearestByPlan(
  reading: Reading,
  limiterOf: PlanOf,
  { part, offset, size, now }: KeysAsked,
): Promise<ShownKeys> {
  const build = (table: RateLimitTable) => someKeysStatement(table, part !== '')
  const rows = await readRows(reading, `some keys ${part !== ''}`, build, { clock: now, part })
  const keys = distinct(rows, 'key', MAX_PLANS).map(keyIn)
  const found: ShownKey[] = []
  for (let place = 0; place < keys.length; place += MAX_PAGE) {
    const some = keys.slice(place, place + MAX_PAGE)
    const planned = await Promise.all(
      some.map(async (key) => ({ key, limiter: await presentPlan(limiterOf, key) })),
    )
    const usages = await lookAtPlans(reading, planned, now)
    found.push(...usages.map((usage) => shownKey(usage.key, usage)))
  }
  const share = ({ used, limit = 0 }: ShownKey) => used / limit
  const nearest = found.toSorted((one, other) => share(other) - share(one) || (one.key < other.key ? -1 : 1))
  return {
    keys: nearest.slice(offset, offset + size),
    total: found.length,
    full: found.filter(({ left }) => left === 0).length,
    cut: cutOf(keys.length, MAX_PLANS, part),
  }
}

/** What was read, if there may be more. */
function cutOf(seen: number, most: number, part: string): string | undefined {
  const [limit, words] = part === '' ? [most, 'keys whose rows end last'] : [MAX_FOUND, 'keys found first']
  return seen >= limit ? `the ${inDigits(limit)} ${words}` : undefined
}

/** Looks at a key. Undefined if it has no row, and so has used nothing. */
export async function lookAtKey(rows: KeyRows, key: string): Promise<ShownKey | undefined> {
  const { checker } = rows.handle
  const { call } = await calledByPlan(rows, key)
  const [usage] = (await lookAll(checker, [call], undefined)) as [Usage]
  const isSeen = usage.used !== 0 || usage.blockedUntil !== undefined || (await hasRow(checker, key))
  return isSeen ? shownKey(key, usage) : undefined
}

/** A look at a key under its plan. */
export async function calledByPlan({ handle, limiterOf }: KeyRows, key: string): Promise<LimiterCall> {
  const limiter = limiterOf && (await presentPlan(limiterOf, key))
  return calledOn(handle, key, { rate: 0, limiter })
}

/** The plan of a key. */
export async function presentPlan(limiterOf: PlanOf, key: string): Promise<Limiter> {
  let limiter: Limiter
  try {
    limiter = await limiterOf(key)
  } catch (cause) {
    // The application's error may have the key in its message, and other limits can be shown.
    const message = 'limiterOf has thrown an error, which is the cause.'
    throw new RatelimitError('INVALID_OPTION', message, { cause })
  }
  checkLimiter(limiter)
  return limiter
}

async function hasRow(checker: Checker, key: string): Promise<boolean> {
  return (await readRows(readingIn(checker), 'has row', hasRowStatement, { key })).length > 0
}

/** The keys that are blocked now: in their own rows, or in those of the gate. Undefined if none can be. */
export async function blockedKeys(owner: Checker, now: number, size: number): Promise<Held[] | undefined> {
  const checker = gateOf(owner) ?? owner
  const { limiter } = checker.terms
  if (!limiter.stored || !limiter.algorithm.sql.blockedUntil) return undefined
  const name = `blocked ${limiter.algorithm.name}`
  const build = (table: RateLimitTable) => blockedStatement(table, limiter)
  const sent = { clock: now, size }
  const rows = await readRows(readingIn(checker), name, build, sent, paramsAt(limiter, now))
  return rows.map((row) => ({ key: keyIn(row), name: '', until: exactNumber(row['until']) }))
}

function shownKey(key: string, { used, limit, remaining: left, reset, blockedUntil }: Usage): ShownKey {
  return { key, used, limit, left, reset, blockedUntil }
}

function keyIn(row: Row): string {
  return String(mustHave(row['key']))
}
