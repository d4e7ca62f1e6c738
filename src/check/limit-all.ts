import type { RateLimitTable } from '../../schema/index.ts'
import { sameLimiter } from '../algorithms/limiter.ts'
import { isUnlimited } from '../algorithms/unlimited.ts'
import { shapeOf } from '../database/ddl.ts'
import { type Connection, run, runOnce } from '../database/run.ts'
import { type Values, valuesOf } from '../database/statement.ts'
import { RatelimitError } from '../errors.ts'
import { type Asked, type Asking, applies, askToLook, askToTake } from '../runtime/ask.ts'
import { type Decision, type Namespace, purposeOf, type Request } from '../runtime/call.ts'
import { decideOne } from '../runtime/decide.ts'
import { compareText, textArray } from '../statements/calls.ts'
import { lock, unmake as unmakeStatement } from '../statements/statements.ts'
import { answerOf, availableIn, type LimitResult, type Reporting, unlimitedAnswer } from './answer.ts'

/** One of several requests, and the row that it is for. */
export interface Charge extends Request, Reporting {
  readonly table: RateLimitTable
  readonly namespace: Namespace
}

/**
 * Consumes all, or nothing, in the given transaction.
 *
 * First it inserts missing rows and locks all rows, in the order of table, prefix and key. Then it looks at
 * all of them. If all have enough, it takes from all. It takes at the time of the look, so that nothing can
 * be denied any more.
 *
 * @returns The limits' own results, in the order of the charges. An unlimited plan is full at `clockMs`.
 */
export async function chargeAll(
  tx: Connection,
  charges: readonly Charge[],
  clockMs: number,
): Promise<LimitResult[]> {
  const limited = charges.filter(({ limiter }) => !isUnlimited(limiter))
  const results = await chargeLimited(tx, limited)
  const byCharge = new Map(limited.map((charge, i) => [charge, results[i]]))
  return charges.map((charge) => byCharge.get(charge) ?? unlimitedAnswer(clockMs))
}

async function chargeLimited(tx: Connection, charges: readonly Charge[]): Promise<LimitResult[]> {
  const rowOf = addUp(charges)
  const rows = [...new Set(rowOf.values())]
  const groups = groupBy(rows, ({ table, namespace, limiter }) =>
    JSON.stringify([shapeOf(table).quoted, namespace.prefix, limiter.signature]),
  )
  const made = await lockAll(tx, rows)
  const looks = new Map<Row, Decision>()
  for (const group of groups) await lookAt(tx, group, looks)

  const fits = (row: Row) => row.rate <= 0 || row.rate <= availableIn(row.limiter, get(looks, row))
  const success = rows.every((row) => fits(row) || row.dryRun)
  const taken = new Map<Row, Decision>()
  for (const group of groups) {
    if (success) await take(tx, group.filter(fits), looks, taken)
    await start(
      tx,
      group.filter((row) => !taken.has(row)),
      looks,
    )
  }
  const allTaken = rows.every((row) => row.rate > 0 && taken.has(row))
  if (!allTaken) await unmake(tx, made)

  // Of calls that are added up, the first one tells which thresholds were crossed.
  const told = new Set<Row>()
  return charges.map((charge) => {
    const row = get(rowOf, charge)
    const decision = taken.get(row)
    const thresholds = told.has(row) ? [] : row.thresholds
    told.add(row)
    if (decision) return answerOf(row, decision, 0, { thresholds, dryRun: row.dryRun })
    // Nothing was taken: a limit that would allow says what it has.
    const asked: Row = fits(row) ? { ...row, rate: 0, purpose: 'look' } : row
    return answerOf(asked, { ...get(looks, row), granted: 0 }, 0, row)
  })
}

/** What is taken from one row: by one call, or by several that are added up. */
type Row = Charge

/** Adds up the charges for each row. Gives each charge its row. */
function addUp(charges: readonly Charge[]): Map<Charge, Row> {
  const rows = new Map<Charge, Row>()
  const ofRows = groupBy(charges, ({ table, namespace, key }) =>
    JSON.stringify([shapeOf(table).quoted, namespace.prefix, key]),
  )
  for (const ofRow of ofRows) {
    const [first] = ofRow
    if (!first || !ofRow.every(({ limiter }) => sameLimiter(limiter, first.limiter))) {
      throw new RatelimitError(
        'INVALID_OPTION',
        'Two of the calls are for one row and have different limits.',
      )
    }
    const rate = ofRow.reduce((sum, charge) => sum + charge.rate, 0)
    const row: Row = {
      ...first,
      rate,
      purpose: purposeOf(rate),
      // If one of them enforces the limit, it is enforced for all.
      dryRun: ofRow.every((charge) => charge.dryRun),
      thresholds: [...new Set(ofRow.flatMap((charge) => charge.thresholds))],
    }
    for (const charge of ofRow) rows.set(charge, row)
  }
  return rows
}

/**
 * Makes the rows that are missing, and locks all, in the order of table, prefix and key; gives the tables
 * where it made some.
 */
async function lockAll(tx: Connection, rows: readonly Row[]): Promise<ReadonlyMap<RateLimitTable, Values>> {
  const made = new Map<RateLimitTable, Values>()
  const tables = groupBy(rows, ({ table }) => shapeOf(table).quoted)
  for (const ofTable of tables.sort(([one], [other]) => compareText(quotedOf(one), quotedOf(other)))) {
    const { table } = ofTable[0] as Row
    const names = namesOf(ofTable)
    const statement = lock(table)
    const makes = await run(tx, statement, valuesOf(statement, names, {}), ANY_SIZE)
    if (makes.length > 0) made.set(table, names)
  }
  return made
}

function quotedOf(row: Row | undefined): string {
  return row ? shapeOf(row.table).quoted : ''
}

function namesOf(rows: readonly Row[]): Values {
  const sorted = rows.toSorted(
    (one, other) =>
      compareText(one.namespace.prefix, other.namespace.prefix) || compareText(one.key, other.key),
  )
  return {
    prefix: textArray(sorted.map(({ namespace }) => namespace.prefix)),
    key: textArray(sorted.map(({ key }) => key)),
  }
}

/** Looks at rows of one limiter. */
async function lookAt(tx: Connection, rows: readonly Row[], looks: Map<Row, Decision>): Promise<void> {
  const asking = askingIn(tx, rows)
  const asked = rows.map((row): Asked => ({ request: { ...row, purpose: 'look' }, calls: ONE }))
  const answers = await askToLook(asking, asked)
  for (const [i, row] of rows.entries()) {
    const answer = answers[i]
    looks.set(row, answer && applies(answer) ? answer : await decideOne(asking, asked[i] as Asked))
  }
}

/** Takes from rows of one limiter at the time of their look, so that none is denied. */
async function take(
  tx: Connection,
  rows: readonly Row[],
  looks: ReadonlyMap<Row, Decision>,
  taken: Map<Row, Decision>,
): Promise<void> {
  const byPurpose = { take: [] as Row[], adjust: [] as Row[], look: [] as Row[] }
  for (const row of rows) byPurpose[row.purpose].push(row)
  for (const row of byPurpose.look) taken.set(row, get(looks, row))
  // Each at its own time: a row ahead of the clock must not take its neighbours into the future.
  for (const sameTime of groupBy(byPurpose.take, (row) => String(get(looks, row).now))) {
    const asking = askingAt(tx, sameTime[0] as Row, looks)
    const answers = await askToTake(asking, sameTime.map(askedOnce))
    for (const [i, row] of sameTime.entries()) {
      taken.set(row, answers[i] ?? (await decideOne(asking, askedOnce(row))))
    }
  }
  for (const row of byPurpose.adjust) {
    taken.set(row, await decideOne(askingAt(tx, row, looks), askedOnce(row)))
  }
}

/**
 * A partly filled bucket starts to fill at its first check, even a denied one. A call for more than any
 * bucket has inserts the row.
 */
async function start(tx: Connection, rows: readonly Row[], looks: ReadonlyMap<Row, Decision>): Promise<void> {
  for (const row of rows) {
    if (row.limiter.algorithm.startsFull || row.purpose === 'look') continue
    const beyondReach: Row = { ...row, rate: 2 * Number.MAX_SAFE_INTEGER, purpose: 'take' }
    await decideOne(askingAt(tx, row, looks), askedOnce(beyondReach))
  }
}

/** Removes the rows that were made and have no state: nothing was taken from them. */
async function unmake(tx: Connection, made: ReadonlyMap<RateLimitTable, Values>): Promise<void> {
  for (const [table, names] of made) {
    const statement = unmakeStatement(table)
    await runOnce(tx.db, statement, valuesOf(statement, names, {}))
  }
}

/** An insert finds its conflict by the primary key, however large the table is. */
const ANY_SIZE = 'any size'

const ONE = { length: 1 }

function askedOnce(request: Row): Asked {
  return { request, calls: ONE }
}

function askingIn({ db, prepared }: Connection, [first]: readonly Row[]): Asking {
  const { table, namespace } = first as Row
  return { target: { db, prepared, table }, namespace, commit: 'as the session' }
}

/** At the time of the row's look. */
function askingAt(tx: Connection, row: Row, looks: ReadonlyMap<Row, Decision>): Asking {
  return { ...askingIn(tx, [row]), clockMs: get(looks, row).now }
}

function get<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key)
  if (value === undefined) throw new RatelimitError('DATABASE', "The database's answer has no row for a key.")
  return value
}

function groupBy<T>(all: readonly T[], keyOf: (each: T) => string): T[][] {
  const groups = new Map<string, T[]>()
  for (const each of all) {
    const key = keyOf(each)
    const group = groups.get(key)
    if (group) group.push(each)
    else groups.set(key, [each])
  }
  return [...groups.values()]
}
