import type { Reporting } from '../answers/answer.ts'
import type { Outcome } from '../answers/outcome.ts'
import type { Allowed } from '../answers/results.ts'
import type { At } from '../check/bounds.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { FundedCall, Purse } from '../check/funds.ts'
import { notAsExpected } from '../database/rows.ts'
import type { RowRequest } from './add-up.ts'
import type { Decisions } from './all-or-nothing.ts'
import { found } from './enough.ts'
import { partsOf, returnedTo } from './parts.ts'
import { ofEach, plainCalls } from './send-payers.ts'
import type { Asked } from './together.ts'
import { withFunds } from './with-funds.ts'

/** The result of a call that funds pay, and that is never denied. */
export interface Repaid {
  readonly answer: Allowed
  /** The amount that it gave back. */
  readonly returned: number
}

/** The result of calls of a row that are never denied. All of them have the same. */
export interface Adjusted {
  readonly outcome: Outcome
  readonly reporting: Reporting
  /** The amount that the refunds among them gave back. */
  readonly returned: number
}

/**
 * Runs calls that are never denied, all or none. Returns their results in the order of the calls. During an
 * outage it always throws; `onError` does not apply.
 *
 * @param find What gives back, or pays, for calls that funds pay.
 * @param ids The calls that close estimates.
 * @returns Undefined if one of the estimates was closed before.
 */
export async function adjustAll(
  calls: readonly LimiterCall[],
  find: (call: FundedCall, place: number) => Promise<Purse>,
  tx: At,
  ids: readonly LimiterCall[] = [],
): Promise<(Adjusted | Repaid)[] | undefined> {
  const { payers, ...sent } = await withFunds(calls, find, tx, () => ({ ids }))
  if (sent.fate === 'repeated') return undefined
  if (!sent.isOver) throw notAsExpected('contradicts itself')
  const others = adjustedIn(sent.asked, sent.decisions, plainCalls(payers))
  return ofEach<Adjusted | Repaid>(payers, others, (purse, payer) => {
    const answer = purse.answer(sent.decisionsOf(payer), sent.fate).answer as Allowed
    return { answer, returned: answer.returned ?? 0 }
  })
}

/** The results of such calls in a list. */
function adjustedIn(asked: Asked, { looks, taken }: Decisions, calls: readonly LimiterCall[]): Adjusted[] {
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
    return { outcome, reporting: each.checker.terms.reporting, returned: 0 }
  })
}
