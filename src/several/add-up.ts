import { sameLimiter } from '../algorithms/limiter.ts'
import type { Reporting } from '../check/answer.ts'
import type { Checker } from '../check/checker.ts'
import { shapeOf } from '../database/ddl.ts'
import { RatelimitError } from '../errors.ts'
import { groupBy } from '../group-by.ts'
import { type Call, isForced, type Namespace, type Request, reservedIn, type Table } from '../runtime/call.ts'
import { checkOption, checkRate, purposeOf } from '../validate.ts'

/** What is taken from one row: by one call, or by several that are added up. */
export interface RowRequest extends Request {
  readonly table: Table
  readonly namespace: Namespace
  readonly reporting: Reporting
  /** What is given back before anything is taken: 0 or less. */
  readonly refund: number
  /** How much has to be there after the refund for all of the calls to be allowed. */
  readonly needed: number
  /** How much of the rate is taken by force. */
  readonly forced: number
}

/** A request, and the checker whose table and prefix it is for. */
export interface Charge {
  readonly checker: Checker
  readonly request: Request
}

/**
 * Adds up the charges for each row. Gives each charge its row.
 *
 * @throws RatelimitError `INVALID_OPTION` for one row under different limits, and for too many rows;
 * `INVALID_RATE` for a sum that is too large.
 */
export function addUp(charges: readonly Charge[]): ReadonlyMap<Charge, RowRequest> {
  const rows = new Map<Charge, RowRequest>()
  const byRow = groupBy(charges, ({ checker: { config }, request }) =>
    rowName({ ...config, key: request.key }),
  )
  for (const ofRow of byRow) {
    const row = sumOf(ofRow)
    for (const charge of ofRow) rows.set(charge, row)
  }
  checkRows([...new Set(rows.values())])
  return rows
}

/** Postgres would take too long to plan a longer list. */
const MAX_ROWS = 50

/** @throws RatelimitError `INVALID_OPTION` */
function checkRows(rows: readonly RowRequest[]): void {
  checkOption(rows.length <= MAX_ROWS, `One call takes at most ${MAX_ROWS} rows.`)
  const named = groupBy(rows, ({ table, namespace, key }) =>
    JSON.stringify([shapeOf(table.table).name, namespace.prefix, key]),
  )
  // One statement cannot update a row twice, and the search_path may make two names one table.
  const hasTwoNames = named.some(
    (same) => same.length > 1 && same.some(({ table }) => shapeOf(table.table).schema === undefined),
  )
  checkOption(
    !hasTwoNames,
    'A table is named with and without its schema. Give all limiters the same tables.',
  )
}

function sumOf(charges: readonly Charge[]): RowRequest {
  const { checker, request } = charges[0] as Charge
  if (!charges.every((other) => sameLimiter(other.request.limiter, request.limiter))) {
    throw new RatelimitError('INVALID_OPTION', 'Two of the calls are for one row and have different limits.')
  }
  const reportings = charges.map(({ checker: { config } }) => config.reporting)
  const requests = charges.map((each) => each.request)
  const refund = ratesOf(requests.filter(isRefund))
  const rate = ratesOf(requests.filter((each) => !isRefund(each)))
  const forced = ratesOf(requests.filter(isForced))
  for (const sum of [refund, rate, forced]) checkRate(sum, request.limiter)
  const reserved = requests.reduce((sum, each) => sum + each.reserved, 0)
  // A row that says what is reserved changes even if an estimate was right.
  const isNeverDenied = forced > 0 || reservedIn({ ...request, reserved }) < 0
  const { table, namespace } = checker.config
  return {
    ...request,
    table,
    namespace,
    refund,
    rate,
    reserved,
    refusesOther: requests.some((each) => each.refusesOther === true),
    forced,
    needed: ratesOf(asked(requests)),
    purpose: isNeverDenied ? 'adjust' : purposeOf(rate),
    reporting: {
      // If one of them enforces the limit, it is enforced for all.
      dryRun: reportings.every(({ dryRun }) => dryRun),
      thresholds: [...new Set(reportings.flatMap(({ thresholds }) => thresholds))],
    },
  }
}

/** What settles an estimate is no refund: another estimate of the row may need what it gives back. */
function isRefund({ rate, reserved }: Call): boolean {
  return rate < 0 && reserved === 0
}

function ratesOf(requests: readonly Request[]): number {
  return requests.reduce((sum, { rate }) => sum + rate, 0)
}

/**
 * The requests whose rates have to fit together. They count in their order: what is forced is gone for those
 * after it, and does not ask what it leaves itself.
 */
function asked(requests: readonly Request[]): readonly Request[] {
  const last = requests.findLastIndex((request) => request.rate > 0 && !isForced(request))
  return requests.filter(({ rate }, place) => rate > 0 && place <= last)
}

/** What tells a row from all others of the database. */
export function rowName(row: Pick<RowRequest, 'table' | 'namespace' | 'key'>): string {
  return JSON.stringify([tableNameOf(row), row.namespace.prefix, row.key])
}

/** The name of the table in SQL: the same for two declarations of one table. */
export function tableNameOf({ table }: { readonly table: Table }): string {
  return shapeOf(table.table).quoted
}
