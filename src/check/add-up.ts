import { sameLimiter } from '../algorithms/limiter.ts'
import { shapeOf } from '../database/ddl.ts'
import { RatelimitError } from '../errors.ts'
import type { Namespace, Request, Table } from '../runtime/call.ts'
import { checkRate, purposeOf } from '../validate.ts'
import type { Reporting } from './answer.ts'
import type { Checker } from './checker.ts'

/** What is taken from one row: by one call, or by several that are added up. */
export interface RowRequest extends Request {
  readonly table: Table
  readonly namespace: Namespace
  readonly reporting: Reporting
}

/** A request, and the checker whose table and prefix it is for. */
export interface Charge {
  readonly checker: Checker
  readonly request: Request
}

/**
 * Adds up the charges for each row. Gives each charge its row.
 *
 * @throws RatelimitError `INVALID_OPTION` for one row under different limits, `INVALID_RATE` for a sum that is
 * too large.
 */
export function addUp(charges: readonly Charge[]): ReadonlyMap<Charge, RowRequest> {
  const rows = new Map<Charge, RowRequest>()
  const byRow = groupBy(charges, ({ checker: { config }, request }) =>
    JSON.stringify([quotedName(config), config.namespace.prefix, request.key]),
  )
  for (const ofRow of byRow) {
    const row = sumOf(ofRow)
    for (const charge of ofRow) rows.set(charge, row)
  }
  return rows
}

function sumOf(charges: readonly Charge[]): RowRequest {
  const { checker, request } = charges[0] as Charge
  if (!charges.every((other) => sameLimiter(other.request.limiter, request.limiter))) {
    throw new RatelimitError('INVALID_OPTION', 'Two of the calls are for one row and have different limits.')
  }
  const reportings = charges.map(({ checker: { config } }) => config.reporting)
  const rate = charges.reduce((sum, each) => sum + each.request.rate, 0)
  const reserved = charges.reduce((sum, each) => sum + each.request.reserved, 0)
  checkRate(rate, request.limiter)
  const { table, namespace } = checker.config
  return {
    ...request,
    ...{ table, namespace, rate, reserved, purpose: purposeOf(rate) },
    reporting: {
      // If one of them enforces the limit, it is enforced for all.
      dryRun: reportings.every(({ dryRun }) => dryRun),
      thresholds: [...new Set(reportings.flatMap(({ thresholds }) => thresholds))],
    },
  }
}

/** The name of the table in SQL: the same for two declarations of one table. */
export function quotedName({ table }: { readonly table: Table }): string {
  return shapeOf(table.table).quoted
}

export function groupBy<T>(all: readonly T[], keyOf: (each: T) => string): T[][] {
  const groups = new Map<string, T[]>()
  for (const each of all) {
    const key = keyOf(each)
    const group = groups.get(key)
    if (group) group.push(each)
    else groups.set(key, [each])
  }
  return [...groups.values()]
}
