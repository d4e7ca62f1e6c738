import { untilDone } from '../kernel/database/retry.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { tableNameOf } from '../kernel/store/empty-rows.ts'
import { inTransactionIf } from '../shared/transaction-if.ts'
import { isPaidByFunds, type PaidByFunds, type Purse } from './funds.ts'
import { paidByFirst } from './paid-by-first.ts'
import {
  byItself,
  listOfPayers,
  type Payer,
  type SentPayers,
  type SentWith,
  sendPayers,
} from './send-payers.ts'

// Calls whose rows only a read can find. It takes no lock, so the rows may have less when they are locked.

/**
 * Finds the rows of the calls and sends them as a list. If it is denied because others have taken from the rows
 * meanwhile, the rows are found again.
 *
 * @param find Finds the rows of a call. Not called for calls with one row.
 * @throws RatelimitError before any SQL `INVALID_OPTION`, `INVALID_RATE` for what does not go together.
 */
export function withFunds(
  calls: readonly LimiterCall[],
  find: (call: PaidByFunds, place: number) => Promise<Purse>,
  tx: At,
  sentWithOf: (payers: readonly Payer[]) => SentWith,
): Promise<SentPayers> {
  if (calls.some(isPaidByFunds)) return sendFound(calls, find, tx, sentWithOf)
  const alone = calls.map(byItself)
  return sendPayers(alone, tx, sentWithOf(alone))
}

async function sendFound(
  ...[calls, find, tx, sentWithOf]: Parameters<typeof withFunds>
): Promise<SentPayers> {
  const alone = calls.map(byItself)
  checkDifferent(calls)
  const sentWith = sentWithOf(alone)
  const { asked, groups } = listOfPayers(alone, tx, sentWith)
  const [{ checker }] = calls as readonly [LimiterCall]
  let payers = await findAll(calls, find)
  const paid = await paidByFirst(payers, sentWith, { asked, groups }, tx)
  if (paid) return paid
  return untilDone('took from the credits', async () => {
    const own = payers
    const sent = await attempt(checker, tx, (at) => sendPayers(own, at, sentWithOf(own)))
    if (sent.isOver) return sent
    const lacking = payers.filter((payer) => payer.purse?.hadEnough(sent.decisionsOf(payer)) === false)
    if (lacking.length === 0) return sent
    const later = await findAll(calls, find)
    const isWorse = (payer: Payer) => {
      const now = later[payers.indexOf(payer)]?.purse
      return now !== undefined && payer.purse?.isWorse(sent.decisionsOf(payer), now) === true
    }
    if (!lacking.every(isWorse)) return sent
    payers = later
    return undefined
  })
}

/** @throws RatelimitError `INVALID_OPTION` */
function checkDifferent(calls: readonly LimiterCall[]): void {
  const funded = calls
    .filter(isPaidByFunds)
    .map(({ checker: { rows }, call }) => [tableNameOf(rows), rows.namespace.prefix, call.key].join('\0'))
  checkOption(new Set(funded).size === funded.length, 'Two of the requests are for the credits of one key.')
}

/** One after the other, because in a transaction a connection runs one statement at a time. */
async function findAll(
  calls: readonly LimiterCall[],
  find: (call: PaidByFunds, place: number) => Promise<Purse>,
): Promise<Payer[]> {
  const payers: Payer[] = []
  for (const [place, call] of calls.entries()) {
    const purse = isPaidByFunds(call) ? await find(call, place) : undefined
    payers.push(purse ? { call, rows: purse.rows, purse } : byItself(call))
  }
  return payers
}

/**
 * Sends a list that may have to be sent again with other rows. In a caller's transaction it runs in a
 * savepoint, so that an attempt that has charged nothing keeps no lock, and the next one locks in the order of
 * every list.
 */
function attempt(checker: Checker, tx: At, send: (tx: At) => Promise<SentPayers>): Promise<SentPayers> {
  const joined = checker.joined(tx)
  return joined
    ? inTransactionIf(
        joined,
        ({ db }) => send(db),
        ({ isOver }) => isOver,
      )
    : send(tx)
}
