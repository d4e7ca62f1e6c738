import type { Outcome, Reporting } from '../check/answer.ts'
import { isRequest, type LimiterCall } from '../check/checker.ts'
import type { Database } from '../database/database.ts'
import type { RowRequest } from './add-up.ts'
import { found } from './all-or-nothing.ts'
import { returnedTo } from './parts.ts'
import { askedOf, followUpAll, takeTogether } from './together.ts'

/** What a call that nothing denies has done; the same for all calls of a row. */
export interface Adjusted {
  readonly outcome: Outcome
  readonly reporting: Reporting
  /** How much the refunds among them gave back. */
  readonly returned: number
}

/**
 * Makes calls that nothing denies, all or none, and says in their order what they did. It throws during an
 * outage whatever `onError` says.
 */
export async function adjustAll(
  calls: readonly LimiterCall[],
  tx: Database | undefined,
): Promise<Adjusted[]> {
  const asked = askedOf(calls, tx)
  try {
    const { looks, taken } = await takeTogether(asked)
    const adjusted = new Map(
      [...taken].map(([row, decision]) => [
        row,
        {
          outcome: { call: row, decision, place: 0 },
          reporting: row.reporting,
          returned: returnedTo(row, found(looks, row)),
        },
      ]),
    )
    const rows = asked.charges.map((charge) => found(asked.rowOf, charge))
    return calls.map((each) => {
      if (isRequest(each.call)) return found(adjusted, rows.shift() as RowRequest)
      const outcome = found(asked.unlimited, each)
      return { outcome, reporting: each.checker.config.reporting, returned: 0 }
    })
  } finally {
    followUpAll(calls)
  }
}
