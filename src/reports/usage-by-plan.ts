import { usageOf } from '../kernel/answers/answer.ts'
import { behindBlock } from '../kernel/answers/capacity.ts'
import type { Usage } from '../kernel/answers/results.ts'
import { groupBy } from '../kernel/base/arrays.ts'
import { distinct, mustHave } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import type { Limiter, Params, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { appliesAt, paramsAt } from '../kernel/limits/limiter.ts'
import { checkLimiter } from '../kernel/options/validate.ts'
import { numberArray, textArray } from '../kernel/sql/calls.ts'
import { BLOCKED } from '../kernel/sql/own-prefixes.ts'
import type { PlanOf } from '../shared/limiter-rows.ts'
import { exactNumber, stateIn, timeOf } from '../shared/number-columns.ts'
import { MAX_PAGE } from '../shared/page.ts'
import { type Reading, readRows } from '../shared/read-rows.ts'
import { keysStatement, lookEachStatement, lookParams } from './sql/usage.ts'

/** What to read, and how many keys to list. */
export interface TopReading extends Reading {
  readonly top: number
}

/** A key and its usage. */
interface Used extends Usage {
  readonly key: string
}

/** A key and its limit. */
interface KeyPlan<L extends Limiter = StoredLimiter> {
  readonly key: string
  readonly limiter: L
}

/** The keys that have used most, each under its own limit. */
export async function usageByPlan(reading: TopReading, limiterOf: PlanOf): Promise<Used[]> {
  let most: Used[] = []
  let after = ''
  for (;;) {
    const keys = await keysAfter(reading, after)
    const planned = await Promise.all(keys.map(async (key) => ({ key, limiter: await limiterOf(key) })))
    for (const { limiter } of planned) checkLimiter(limiter)
    // Read for each page. With an old time, a row that changed since would look as if a wrong clock wrote it.
    const time = await timeOf(reading.db, reading.clock)
    most.push(...(await lookAtPlans(reading, planned, time)))
    const last = keys.at(-1)
    const isEnd = last === undefined || keys.length < MAX_PAGE
    // Not after each page, because that would sort a long list again for a few keys.
    if (isEnd || most.length >= 2 * reading.top) most = most.toSorted(byUse).slice(0, reading.top)
    if (isEnd) return most
    after = last
  }
}

function byUse(one: Used, other: Used): number {
  return other.used - one.used || (one.key < other.key ? -1 : 1)
}

async function keysAfter(reading: Reading, after: string): Promise<string[]> {
  const { isShown } = reading.table.store
  const rows = await readRows(reading, 'keys', (table) => keysStatement(table, isShown), { after })
  return distinct(rows, 'key', MAX_PAGE).map((row) => String(row['key']))
}

/** A key and the time that decides its calendar period. */
interface KeyPlanAt extends KeyPlan {
  readonly placedAt: number
}

/** The usage of keys whose limiters have any algorithms. Keys without usage are skipped. */
export async function lookAtPlans(
  reading: Reading,
  planned: readonly KeyPlan<Limiter>[],
  time: number,
): Promise<Used[]> {
  const stored = planned.flatMap(({ key, limiter }) => (limiter.stored ? [{ key, limiter }] : []))
  const used: Used[] = []
  // The limits of one statement differ in their numbers only.
  for (const alike of groupBy(stored, ({ limiter }) => limiter.algorithm.name)) {
    used.push(...(await lookAtEach(reading, alike, time)))
  }
  return used
}

/** The usage of keys whose limiters have one algorithm. Keys without usage are skipped. */
export async function lookAtEach(
  reading: Reading,
  planned: readonly KeyPlan[],
  time: number,
): Promise<Used[]> {
  const used: Used[] = []
  let rest: readonly KeyPlanAt[] = planned.map((each) => ({ ...each, placedAt: time }))
  while (rest.length > 0) {
    const asked = rest.map((each) => ({ ...each, params: paramsAt(each.limiter, each.placedAt) }))
    const ahead: KeyPlanAt[] = []
    for (const row of await usageRows(reading, asked, time)) {
      const one = mustHave(asked[Number(row['place']) - 1])
      const now = exactNumber(row['now'])
      // A row of the next period, written by a clock that is ahead, is read at its own time.
      if (one.limiter.periodAt && !appliesAt(one.params, now)) {
        ahead.push({ ...one, placedAt: now })
      } else if (row['holds'] === true) {
        const found = usageOf(one.limiter, { now, state: stateIn(row, one.limiter), params: one.params })
        // A block by hand of a lockout without a limit has used nothing.
        if (found.used > one.limiter.algorithm.tolerance || found.blockedUntil !== undefined) {
          used.push({ key: one.key, ...behindBlock(found, blockIn(row, now)) })
        }
      }
    }
    rest = ahead
  }
  return used
}

async function usageRows(
  reading: Reading,
  asked: readonly (KeyPlan & { readonly params: Params })[],
  clock: number,
): Promise<readonly Row[]> {
  const { limiter } = asked[0] as KeyPlan
  const name = `look each ${limiter.algorithm.name}`
  const { isShown } = reading.table.store
  const columns = lookParams(limiter).map((param) => [
    param,
    numberArray(asked.map(({ params }) => params[param] as number)),
  ])
  const key = textArray(asked.map((each) => each.key))
  const sent = { ...Object.fromEntries(columns), gates: gatesOf(reading.prefix), clock, key }
  const rows = await readRows(reading, name, (table) => lookEachStatement(table, limiter, isShown), sent)
  return distinct(rows, 'place', asked.length)
}

/** The prefix of the rows that block keys of a prefix. */
export function gatesOf(prefix: string): string {
  return prefix + BLOCKED
}

/** When the block ends that a row was found with. Undefined if it is over, or if there was none. */
export function blockIn(row: Row, now: number): number | undefined {
  const until = exactNumber(row['blocked'])
  return until > now ? until : undefined
}
