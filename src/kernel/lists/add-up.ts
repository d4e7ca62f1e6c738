import { isRequest } from '../answers/outcome.ts'
import { distinctThresholds } from '../answers/thresholds.ts'
import { groupBy } from '../base/arrays.ts'
import { nameOf } from '../database/table-name.ts'
import type { LimiterCall } from '../engine/checker.ts'
import { isFound, isFunded } from '../engine/funds.ts'
import { otherPlan } from '../engine/refusal.ts'
import { RatelimitError } from '../errors.ts'
import { sameLimiter } from '../limits/limiter.ts'
import { checkOption, checkRate, purposeOf } from '../options/validate.ts'
import { type Call, neededBy, type Request, reservedIn } from '../store/call.ts'
import type { Entry } from '../store/entry.ts'
import { mayNeedSeveral, type RowRequest } from './sending.ts'

/** A call that the database decides. */
interface ChargingCall extends LimiterCall<Request> {
  readonly kind?: Entry['kind']
  readonly inTime?: boolean
}

function isCharge(each: LimiterCall): each is ChargingCall {
  return isRequest(each.call) && !isFunded(each)
}

/**
 * Adds up the calls for each row, and returns the row of each call. Calls without a limit, and calls that funds
 * pay, have none.
 *
 * @throws RatelimitError `INVALID_OPTION` for one row under different limits, and for too many rows;
 * `OTHER_PLAN` if a read has found the row; `INVALID_RATE` for a sum that is too large.
 */
export function addUp(calls: readonly LimiterCall[]): ReadonlyMap<LimiterCall, RowRequest> {
  const named = new Map<string, ChargingCall[]>()
  for (const each of calls) {
    if (!isCharge(each)) continue
    const name = nameOfRow(each)
    const same = named.get(name)
    if (same) same.push(each)
    else named.set(name, [each])
  }
  const rows = new Map<LimiterCall, RowRequest>()
  const all: RowRequest[] = []
  named.forEach((ofRow, name) => {
    const row = rowOfCharges(name, ofRow)
    all.push(row)
    for (const charge of ofRow) rows.set(charge, row)
  })
  const asked = () => new Set(calls.flatMap((each) => (isFound(each) ? [] : (rows.get(each) ?? []))))
  const mayBeTooMany = all.length > MAX_ASKED
  checkOption(!mayBeTooMany || asked().size <= MAX_ASKED, `One call takes at most ${MAX_ASKED} rows.`)
  checkOneDeclaration(all)
  return mayNeedSeveral(all) ? withoutMaking(rows) : rows
}

/** The rows of a list that may need several statements: a row that one of them makes would outlast a denial. */
function withoutMaking(rows: ReadonlyMap<LimiterCall, RowRequest>): ReadonlyMap<LimiterCall, RowRequest> {
  const plain = new Map(
    [...new Set(rows.values())].map((row) => {
      const namespace = { ...row.namespace, isUsuallyNew: false }
      return [row, row.namespace.isUsuallyNew ? { ...row, namespace } : row] as const
    }),
  )
  return new Map([...rows].map(([each, row]) => [each, plain.get(row) ?? row]))
}

/** How many rows calls may ask for. A call that funds pay may have more. */
const MAX_ASKED = 50

/** @throws RatelimitError `INVALID_OPTION` */
function checkOneDeclaration(rows: readonly RowRequest[]): void {
  const schemas = rows.map(({ table }) => nameOf(table.table).schema)
  if (schemas.every((schema) => schema === schemas[0])) return
  // One statement cannot update a row twice, and by the search_path two names may mean one table.
  const named = groupBy(rows, ({ table, namespace, key }) =>
    JSON.stringify([nameOf(table.table).name, namespace.prefix, key]),
  )
  const hasTwoNames = named.some(
    (same) => same.length > 1 && same.some(({ table }) => nameOf(table.table).schema === undefined),
  )
  checkOption(!hasTwoNames, 'A table is used with and without its schema. Give all limiters the same tables.')
}

function rowOfCharges(name: string, charges: readonly ChargingCall[]): RowRequest {
  const [first] = charges as readonly [ChargingCall]
  const { rows, terms } = first.checker
  const { table, namespace } = rows
  const { rate, refund, needed, forced, reserved, purpose } = rowSumsOf(charges)
  const { key, limiter, paidWindowStart, refundableUntil, atLeast, refusesOther } = first.call
  // This runs for each list, and a spread would take many times as long.
  const row: RowRequest = {
    key,
    limiter,
    paidWindowStart,
    refundableUntil,
    within: null,
    atLeast,
    refusesOther,
    row: name,
    table,
    namespace,
    reporting: terms.reporting,
    kind: first.kind,
    inTime: first.inTime === true,
    rate,
    refund,
    needed,
    forced,
    reserved,
    purpose,
  }
  return charges.length > 1 ? sharedBy(charges, row) : row
}

/** The request of several charges for one row. */
function sharedBy(charges: readonly ChargingCall[], row: RowRequest): RowRequest {
  if (!charges.every(({ call }) => sameLimiter(call.limiter, row.limiter))) {
    if (charges.some(isFound)) throw otherPlan()
    throw new RatelimitError('INVALID_OPTION', 'Two of the calls are for one row and have different limits.')
  }
  const takesLess = charges.some(({ call }) => call.purpose === 'take' && call.atLeast !== null)
  checkOption(!takesLess, 'Two of the calls are for one row, and one has atLeast.')
  for (const sum of [row.refund, row.rate, row.forced]) checkRate(sum, row.limiter, row.namespace.prefix)
  const reportings = charges.map(({ checker }) => checker.terms.reporting)
  return {
    ...row,
    refusesOther: charges.some(({ call }) => call.refusesOther),
    inTime: charges.some(({ inTime }) => inTime),
    reporting: {
      // If one of them enforces the limit, it is enforced for all.
      dryRun: reportings.every(({ dryRun }) => dryRun),
      thresholds: distinctThresholds(reportings.flatMap(({ thresholds }) => thresholds)),
    },
  }
}

/**
 * The sums of the charges for one row.
 *
 * The rates count in their order. A forced charge never needs anything itself, and leaves less for the charges
 * after it.
 */
function rowSumsOf(charges: readonly ChargingCall[]) {
  const [first] = charges as readonly [ChargingCall]
  const { limiter, purpose } = first.call
  let rate = 0
  let refund = 0
  let taken = 0
  let needed = 0
  let forced = 0
  let reserved = 0
  for (const { call } of charges) {
    reserved += call.reserved
    if (isRefund(call)) {
      refund += call.rate
      continue
    }
    rate += call.rate
    // A gate only has to be open.
    if (call.purpose === 'look') needed = Math.max(needed, call.atLeast ?? 0)
    if (call.rate <= 0 || call.purpose === 'add') continue
    if (call.purpose === 'adjust') forced += call.rate
    else needed = taken + neededBy(call)
    taken += call.rate
  }
  // A row that keeps the reserved amount changes even if an estimate was right.
  const isNeverDenied = forced > 0 || reservedIn({ limiter, reserved }) < 0
  const ofSum = isNeverDenied ? 'adjust' : purposeOf(rate)
  // What is added comes alone.
  return { rate, refund, needed, forced, reserved, purpose: purpose === 'add' ? purpose : ofSum }
}

/**
 * Whether it is a refund. A settlement is not: the amount that it gives back may pay for another settlement.
 */
function isRefund({ rate, reserved }: Call): boolean {
  return rate < 0 && reserved === 0
}

/** The unique name of the call's row in the database. */
export function nameOfRow({ checker: { rows }, call }: LimiterCall): string {
  const { prefix } = rows.namespace
  return `${nameOf(rows.table.table).quoted} ${prefix.length} ${prefix} ${call.key}`
}
