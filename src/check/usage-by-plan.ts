import type { RateLimitTable } from '../../schema/index.ts'
import type { Limiter, Params, StoredLimiter } from '../algorithms/algorithm.ts'
import { appliesAt, paramsAt } from '../algorithms/limiter.ts'
import type { Database } from '../database/database.ts'
import { runOnce } from '../database/run.ts'
import { RatelimitError } from '../errors.ts'
import { mustHave, stateIn } from '../runtime/ask.ts'
import { numberArray, textArray } from '../statements/calls.ts'
import { kept, statementsOf } from '../statements/statements.ts'
import { keysStatement, lookEachStatement, lookParams, MAX_PAGE } from '../statements/usage.ts'
import { checkLimiter } from '../validate.ts'
import { groupBy } from './add-up.ts'
import { usageOf } from './answer.ts'
import type { Usage } from './results.ts'

/** Which rows are read, and by which time. */
export interface Reading {
  readonly db: Database
  readonly table: RateLimitTable
  readonly prefix: string
  readonly top: number
  /** The injected time; null for the database's. */
  readonly clock: number | null
}

/** A key and what it has used. */
interface Used extends Usage {
  readonly key: string
}

/** A key and its limit. */
interface Planned {
  readonly key: string
  readonly limiter: StoredLimiter
}

/** The keys that have used most, each under its own limit. */
export async function usageByPlan(reading: Reading, limiterOf: (key: string) => Limiter): Promise<Used[]> {
  let most: Used[] = []
  let after = ''
  for (;;) {
    const keys = await keysAfter(reading, after)
    const planned = keys.flatMap((key): Planned[] => {
      const limiter = limiterOf(key)
      checkLimiter(limiter)
      return limiter.stored ? [{ key, limiter }] : []
    })
    for (const alike of groupBy(planned, ({ limiter }) => variantOf(limiter))) {
      most.push(...(await lookAtEach(reading, alike)))
    }
    most = most.toSorted(byUse).slice(0, reading.top)
    const last = keys.at(-1)
    if (last === undefined || keys.length < MAX_PAGE) return most
    after = last
  }
}

/** The limits of one statement: they differ in their numbers only. */
function variantOf({ algorithm, startsFull }: StoredLimiter): string {
  return `${algorithm.name} ${startsFull}`
}

function byUse(one: Used, other: Used): number {
  return other.used - one.used || (one.key < other.key ? -1 : 1)
}

async function keysAfter({ db, table, prefix }: Reading, after: string): Promise<string[]> {
  const statement = kept(statementsOf(table), 'keys', () => keysStatement(table))
  return (await runOnce(db, statement, { prefix, after })).map((row) => String(mustHave(row['key'])))
}

/** The calendar period of a key may end meanwhile, but not again and again. */
const MAX_TRIES = 10

async function lookAtEach(reading: Reading, planned: readonly Planned[]): Promise<Used[]> {
  const used: Used[] = []
  let rest = planned
  let time = reading.clock ?? Date.now()
  for (let tries = 0; tries < MAX_TRIES && rest.length > 0; tries++) {
    const asked = rest.map((each) => ({ ...each, params: paramsAt(each.limiter, time) }))
    const again: Planned[] = []
    for (const row of await rowsOf(reading, asked)) {
      const one = mustHave(asked[Number(row['place']) - 1])
      const now = Number(mustHave(row['now']))
      if (one.limiter.periodAt && !appliesAt(one.params, now)) {
        time = now
        again.push(one)
      } else if (row['holds'] === true) {
        const found = usageOf(one.limiter, { now, state: stateIn(row, one.limiter), params: one.params })
        if (found.used > one.limiter.algorithm.tolerance) used.push({ key: one.key, ...found })
      }
    }
    rest = again
  }
  if (rest.length === 0) return used
  throw new RatelimitError('DATABASE', "The database's clock jumped from one period to another and back.")
}

function rowsOf(
  { db, table, prefix, clock }: Reading,
  asked: readonly (Planned & { readonly params: Params })[],
): ReturnType<typeof runOnce> {
  const { limiter } = asked[0] as Planned
  const name = `look each ${variantOf(limiter)} ${clock !== null}`
  const statement = kept(statementsOf(table), name, () => lookEachStatement(table, limiter, clock !== null))
  const columns = lookParams(limiter).map((param) => [
    param,
    numberArray(asked.map(({ params }) => params[param] as number)),
  ])
  const key = textArray(asked.map((each) => each.key))
  return runOnce(db, statement, { ...Object.fromEntries(columns), prefix, clock, key })
}
