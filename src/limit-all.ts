import type { RateLimitTable } from '../schema/index.ts'
import { startsWhole } from './algorithms/token-bucket.ts'
import { isUnlimited } from './algorithms/unlimited.ts'
import { answerOf, availableOf, type LimitResult, unlimitedAnswer } from './answer.ts'
import { shapeOf } from './database/ddl.ts'
import type { Values } from './database/rendered.ts'
import { type Runner, run } from './database/run.ts'
import { RatelimitError } from './errors.ts'
import {
  type Call,
  type CallGroup,
  type Decision,
  decide,
  decisionFor,
  look,
  nameOf,
  of,
  once,
} from './runtime/decide.ts'
import { sameLimiter } from './runtime/queue.ts'
import { batchOf, inLockOrder } from './statements/input.ts'
import { lock, unmake } from './statements/statements.ts'

/** One of several calls, and the table its row is in. */
export interface Charge extends Call {
  readonly table: RateLimitTable
}

/** What is taken from one row: by one call, or by several that are added up. */
interface RowCharge extends CallGroup {
  readonly table: RateLimitTable
}

/**
 * Consumes all, or nothing, in the given transaction.
 *
 * First every row is made where it is missing, and locked, in the order of table, prefix and key. Then all are looked at. Only
 * when all have enough is anything taken, at the time of the look, so that it cannot be denied any more.
 *
 * @returns The limits' own results, in the order of the charges. What has no limit is whole at `clockMs`.
 */
export async function chargeAll(
  tx: Runner,
  charges: readonly Charge[],
  clockMs: number,
): Promise<LimitResult[]> {
  const limited = charges.filter(({ limiter }) => !isUnlimited(limiter))
  const results = await chargeLimited(tx, limited)
  const byCharge = new Map(limited.map((charge, i) => [charge, results[i]]))
  return charges.map((charge) => byCharge.get(charge) ?? unlimitedAnswer(clockMs))
}

async function chargeLimited(tx: Runner, charges: readonly Charge[]): Promise<LimitResult[]> {
  const rows = addUp(charges)
  const distinct = [...new Set(rows)]
  const tables = [...groupBy(distinct, ({ table }) => table)].sort(([one], [other]) => compare(one, other))
  const kinds = tables.flatMap(([table, ofTable]) =>
    [...groupBy(ofTable, ({ limiter }) => limiter.algorithm).values()].map((group) => ({ table, group })),
  )

  const made = new Map<RateLimitTable, readonly Values[]>()
  for (const [table, ofTable] of tables) {
    const names = await run(tx, lock(table), batchOf(inLockOrder(ofTable.map(nameOf), (name) => name)))
    made.set(
      table,
      names.map(({ prefix, key }) => ({ prefix: String(prefix), key: String(key) })),
    )
  }
  const decisions = new Map<RowCharge, Decision>()
  for (const { table, group } of kinds) {
    for (const [row, standing] of await look({ ...tx, table }, group)) {
      const granted = row.rate <= 0 || row.rate <= availableOf(row.limiter, standing) ? 1 : 0
      decisions.set(row, { ...standing, granted, peak: Number.POSITIVE_INFINITY })
    }
  }
  const fits = (row: RowCharge) => of(row, decisions).granted === 1
  const success = distinct.every((row) => fits(row) || row.dryRun)
  if (success) {
    for (const { table, group } of kinds) {
      const now = group
        .filter(fits)
        .map((row) => ({ ...row, row, namespace: at(row, of(row, decisions).now) }))
      const taken = await decide({ ...tx, table }, now, 'as the session', once)
      for (const each of now) decisions.set(each.row, decisionFor(each, taken))
    }
  }
  // A bucket that starts partly filled fills from its first check on, though it be denied: what nobody can take starts it.
  for (const { table, group } of kinds) {
    const starting = group.filter((row) => !startsWhole(row.limiter) && !(success && fits(row)))
    const checks = starting.map((row) => ({ ...row, rate: Number.MAX_SAFE_INTEGER }))
    const started = await decide({ ...tx, table }, checks, 'as the session', once)
    for (const each of checks) decisionFor(each, started)
  }
  for (const [table, ofTable] of tables) {
    const names = of(table, made)
    const allWritten = success && ofTable.every((row) => row.rate > 0 && fits(row))
    if (names.length > 0 && !allWritten) await run(tx, unmake(table), batchOf(names))
  }
  // Of calls that are added up, the first one tells which thresholds were crossed.
  return rows.map((row, i) => {
    const thresholds = rows.indexOf(row) === i ? row.thresholds : []
    return answerOf({ ...row, thresholds }, of(row, decisions), 0)
  })
}

/** For each charge what is taken from its row by all that are for it. */
function addUp(charges: readonly Charge[]): RowCharge[] {
  const byName = groupBy(charges, ({ table, namespace, key }) =>
    JSON.stringify([shapeOf(table).quoted, namespace.prefix, key]),
  )
  const rows = new Map<Charge, RowCharge>()
  for (const ofRow of byName.values()) {
    const [first] = ofRow
    if (!first || !ofRow.every(({ limiter }) => sameLimiter(limiter, first.limiter))) {
      throw new RatelimitError(
        'INVALID_OPTION',
        'Two of the calls are for one row and have different limits.',
      )
    }
    const rate = ofRow.reduce((sum, charge) => sum + charge.rate, 0)
    // Whoever enforces the limit enforces it for all.
    const dryRun = ofRow.every((charge) => charge.dryRun)
    const thresholds = [...new Set(ofRow.flatMap((charge) => charge.thresholds))]
    const row = { ...first, rate, dryRun, thresholds, calls: 1 }
    for (const charge of ofRow) rows.set(charge, row)
  }
  return charges.map((charge) => of(charge, rows))
}

function at({ namespace }: RowCharge, now: number): Call['namespace'] {
  return { prefix: namespace.prefix, clock: () => now }
}

function compare(one: RateLimitTable, other: RateLimitTable): number {
  return shapeOf(one).quoted < shapeOf(other).quoted ? -1 : 1
}

function groupBy<T, K>(all: readonly T[], keyOf: (each: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>()
  for (const each of all) {
    const key = keyOf(each)
    const group = groups.get(key)
    if (group) group.push(each)
    else groups.set(key, [each])
  }
  return groups
}
