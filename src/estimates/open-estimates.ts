import { windowEndOf } from '../kernel/answers/refundable.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { runOn } from '../kernel/engine/work.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { askedOf } from '../kernel/lists/combined-calls.ts'
import { found } from '../kernel/lists/enough.ts'
import { takeTogether } from '../kernel/lists/together.ts'
import { type Decision, lookAt, type Request, requestFor } from '../kernel/store/call.ts'
import { stateIn } from '../shared/number-columns.ts'
import type { Named } from './charged.ts'
import { CLOSING, type Opened, openedIn } from './estimate-row.ts'
import { isPaidByFunds } from './funds.ts'
import { namesOf, payerIn, shareCheckers } from './names.ts'
import type { Charged } from './settlement.ts'
import { openStatement } from './sql/estimates.ts'

// Reads the rows of estimates with a name.

/** An open estimate as it was seen. */
export interface Open extends Charged {
  readonly opened: Opened
  /** Its row, and those of the shares in it. */
  readonly rows: readonly OpenRow[]
}

/** The row of an open estimate, or of a share in it, and the call that closes it. */
interface OpenRow extends LimiterCall {
  readonly call: Request
  readonly opened: Opened
  readonly isFound?: true
}

/** An open estimate that was seen, with the shares in it. It reads these, and locks nothing. */
export async function openOf(own: Named, opened: Opened, tx: At): Promise<Open> {
  const { each, row } = own
  const shares = isPaidByFunds(each) ? await openSharesOf(own, tx) : []
  const parts = shares.map(({ call, opened: { rate, madeMs } }) => {
    return { key: payerIn(call.key).key, madeMs: madeMs ?? 0, amount: rate }
  })
  const closing = { checker: namesOf(each.checker).closer, call: requestFor(row, CLOSING, 'take', 1), opened }
  const { refundableUntil, dryRun, layout } = opened
  return {
    each,
    paid: opened,
    parts,
    refundableUntil,
    windowEnd: opened.windowEnd ?? windowEndOf(each.call.limiter, opened),
    how: dryRun ? 'dry run' : 'charged',
    isReserved: true,
    layout,
    needsPlan: opened.hasPlan && !own.hasPlan,
    row,
    opened,
    rows: [closing, ...shares],
  }
}

/** The rows that say what rows of funds have paid of an open estimate, in the order of paying. */
async function openSharesOf({ each: { checker }, row }: Named, tx: At): Promise<OpenRow[]> {
  const { closer } = shareCheckers(checker)
  const { namespace, table } = closer.rows
  const statement = kept(table.statements, 'open true', () => openStatement(table.table, true))
  const values = { prefix: namespace.prefix, from: `${row}/`, to: `${row}/z`, size: Number.MAX_SAFE_INTEGER }
  const rows = await runOn(checker, tx, 'looks', (connection) => runOnce(connection, statement, values))
  const shares = rows.flatMap((own): OpenRow[] => {
    const opened = openedIn(stateIn(own, CLOSING))
    const call = requestFor(String(own['key']), CLOSING, 'take', 1)
    return opened ? [{ checker: closer, call, opened, isFound: true }] : []
  })
  return shares.toSorted((one, other) => payerIn(one.call.key).place - payerIn(other.call.key).place)
}

/**
 * Looks at the estimates. One statement sees those of a name as they were at one time.
 *
 * @throws RatelimitError `NOT_RESERVED`
 */
export async function readOpened(named: readonly Named[], tx: At): Promise<Opened[]> {
  const calls = looksAt(named)
  const [only, ...more] = calls
  const decisions =
    only && more.length === 0
      ? [(await only.checker.decide(only.call, tx)).decision]
      : await lookTogether(calls, tx)
  return decisions.map(({ state }) => {
    const seen = openedIn(state)
    if (seen) return seen
    throw new RatelimitError(
      'NOT_RESERVED',
      'There is no reservation with this key and id: it was denied or rolled back, or it was settled long ago.',
    )
  })
}

/** The calls that look at the rows of estimates. */
export function looksAt(named: readonly Named[]): LimiterCall[] {
  return named.map(({ each, row }) => ({ checker: namesOf(each.checker).closer, call: lookAt(row, CLOSING) }))
}

async function lookTogether(calls: readonly LimiterCall[], tx: At): Promise<Decision[]> {
  const asked = askedOf(calls, tx)
  const { looks } = await takeTogether(asked)
  return calls.map((call) => found(looks, found(asked.rowOf, call)))
}
