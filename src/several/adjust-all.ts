import type { Reporting } from '../answers/answer.ts'
import type { Outcome } from '../answers/outcome.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import type { RowRequest } from './add-up.ts'
import type { Decisions } from './all-or-nothing.ts'
import { found } from './enough.ts'
import { partsOf, returnedTo } from './parts.ts'
import { type Asked, askedOf, takeTogether } from './together.ts'

/** The result of calls that are never denied. All calls of a row have the same. */
export interface Adjusted {
  readonly outcome: Outcome
  readonly reporting: Reporting
  /** The amount that the refunds among them gave back. */
  readonly returned: number
}

/**
 * Runs calls that are never denied, all or none. Returns their results in the order of the calls. During an
 * outage it always throws; `onError` does not apply.
 */
export async function adjustAll(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Adjusted[]> {
  const asked = askedOf(calls, tx)
  return adjustedIn(asked, await takeTogether(asked), calls)
}

/** The results of such calls in a list. */
export function adjustedIn(
  asked: Asked,
  { looks, taken }: Decisions,
  calls: readonly LimiterCall[],
): Adjusted[] {
  const adjusted = new Map(
    [...taken].map(([row, decision]): [RowRequest, Adjusted] => {
      const look = found(looks, row)
      const call = partsOf(row, look).at(-1) ?? row
      return [
        row,
        {
          outcome: { call, decision, place: 0 },
          reporting: row.reporting,
          returned: returnedTo(row, look),
        },
      ]
    }),
  )
  return calls.map((each) => {
    const row = asked.rowOf.get(each)
    if (row) return found(adjusted, row)
    const outcome = found(asked.unlimited, each)
    return { outcome, reporting: each.checker.config.reporting, returned: 0 }
  })
}
