import { isRequest } from '../kernel/answers/outcome.ts'
import { untilDone } from '../kernel/database/retry.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { tableNameOf } from '../kernel/store/empty-rows.ts'
import { inSavepointIf } from '../shared/transaction-if.ts'
import { isPaidByFunds, type PaidByFunds, type PayingCall, type Purse } from './funds.ts'
import { inTurn } from './in-turn.ts'
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

/** Finds the rows of a call at a place of a list. */
type Find = (call: PaidByFunds, at: At, place: number) => Promise<Purse>

/**
 * Finds the rows of the calls and sends them as a list. If it is denied because others have taken from the rows
 * meanwhile, the rows are found again.
 *
 * @param find Not called for calls with one row.
 * @throws RatelimitError before any SQL `INVALID_OPTION`, `INVALID_RATE` for what does not go together.
 */
export function withFunds(
  calls: readonly LimiterCall[],
  find: Find,
  tx: At,
  sentWith: SentWith,
): Promise<SentPayers> {
  if (!calls.some(isPaidByFunds)) return sendPayers(calls.map(byItself), tx, sentWith)
  const checkers = calls.map(({ checker }) => checker)
  return withinTimeout(checkers, tx, (at) => sendFound(calls, find, at, sentWith))
}

async function sendFound(
  calls: readonly LimiterCall[],
  find: Find,
  at: At,
  sentWith: SentWith,
): Promise<SentPayers> {
  checkDifferent(calls)
  const { asked } = listOfPayers(calls.map(byItself), at, sentWith)
  const [{ checker }] = calls as readonly [LimiterCall]
  let payers = await findAll(calls, find, at)
  const paid = await paidByFirst(payers, sentWith, asked, at)
  if (paid) return paid
  /** Undefined if the list has to be sent again with other rows. */
  const attempt = async (tx: At): Promise<SentPayers | undefined> => {
    const sent = await sendPayers(inOrder(payers, sentWith), tx, sentWith)
    if (sent.status !== 'not charged') return sent
    const lacking = sent.payers.flatMap(({ purse, decisions }, place) => {
      const had = purse?.lacked(decisions)
      return had === undefined ? [] : [{ had, place }]
    })
    if (lacking.length === 0) return sent
    payers = await findAll(calls, find, tx)
    const hasMore = ({ had, place }: (typeof lacking)[number]) => had < (payers[place]?.purse?.has ?? 0)
    // Of a rate that all share, one of them can pay what another lacks.
    const isWorthIt = sentWith.shared ? lacking.some(hasMore) : lacking.every(hasMore)
    return isWorthIt ? undefined : sent
  }
  // After a rollback, the next attempt locks in the order of every list. A denial keeps the row of a bucket
  // that begins to fill.
  return untilDone('took from the credits', () =>
    inSavepointIf(checker.joined(at), at, attempt, (sent) => sent !== undefined),
  )
}

/**
 * Takes nothing from what comes after funds that have the whole rate. If others take from the rows of the funds
 * meanwhile, the funds may have other rows, so the limits after them are not to pay yet.
 */
function inOrder(payers: readonly Payer[], { shared }: SentWith): readonly Payer[] {
  const last = shared ? payers.findIndex(({ purse }) => purse && purse.has >= shared.rate) : -1
  return payers.map((payer, place) =>
    last < 0 || place <= last ? payer : { ...payer, rows: payer.rows.map(unpaying), paysNothing: true },
  )
}

/** The row, which may still settle what it has reserved. */
function unpaying(row: PayingCall): PayingCall {
  // A limit without a row is found by its call.
  if (!isRequest(row.call)) return row
  return { ...row, pays: undefined, call: { ...row.call, rate: 0, reserved: Math.min(row.call.reserved, 0) } }
}

/** @throws RatelimitError `INVALID_OPTION` */
function checkDifferent(calls: readonly LimiterCall[]): void {
  const funded = calls
    .filter(isPaidByFunds)
    .map(({ checker: { rows }, call }) => [tableNameOf(rows), rows.namespace.prefix, call.key].join('\0'))
  checkOption(new Set(funded).size === funded.length, 'Two of the requests are for the credits of one key.')
}

/** One after the other, because in a transaction a connection runs one statement at a time. */
async function findAll(calls: readonly LimiterCall[], find: Find, at: At): Promise<Payer[]> {
  return inTurn(calls, async (call, place) => {
    const purse = isPaidByFunds(call) ? await find(call, at, place) : undefined
    return purse ? { call, rows: purse.rows, purse } : byItself(call)
  })
}
