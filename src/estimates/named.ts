import type { Answered } from '../kernel/answers/answer.ts'
import type { Database } from '../kernel/database/database.ts'
import { parseDuration } from '../kernel/duration.ts'
import type { LimiterCall } from '../kernel/engine/checker.ts'
import { watched } from '../kernel/engine/layers.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { nameOfRow } from '../kernel/lists/add-up.ts'
import { usedIds } from '../kernel/lists/combined-calls.ts'
import { reportsOf } from '../kernel/lists/limit-all.ts'
import { checkOption } from '../kernel/options/validate.ts'
import { requestFor } from '../kernel/store/call.ts'
import { type Named, type Opening, remember } from './charged.ts'
import { chargedIn } from './charged-in.ts'
import type { Settle } from './costs.ts'
import { noting, opened as openedBy } from './estimate-row.ts'
import { type FoundRow, isPaidByFunds } from './funds.ts'
import { inRows } from './in-rows.ts'
import { keyOfName, keyOfShare, namesOf, shareCheckers } from './names.ts'
import { looksAt } from './open-estimates.ts'
import type { Naming } from './options.ts'
import { sendCalls } from './send-calls.ts'
import type { NotesOfCalls, Payer, SentPayers } from './send-payers.ts'

// How estimates with a name are charged: the statement that charges the limits makes their rows.

/** The answers to calls that reserve under a name, and how the estimates of the name are settled. */
interface NamedAnswers {
  readonly answered: Answered[]
  readonly settle: Settle
}

/**
 * Charges the estimates and opens their rows, all or none. During an outage it always throws, because without
 * its row an estimate would not be settled. If the name is in use, it charges nothing, and the estimates are
 * those of the first call.
 */
export async function chargeNamed(
  calls: readonly LimiterCall[],
  name: Naming,
  tx: Database | undefined,
): Promise<NamedAnswers> {
  const openings = await openingsOf(calls, name)
  const charge = async () => {
    const { answered, sent } = await sendCalls(calls, tx, { notes: (payers) => notesOf(openings, payers) })
    checkNames(sent)
    remember(openings, answered, sent)
    return answered
  }
  const answered = await watched(calls, tx, charge, reportsOf)
  const isRepeated = answered.some(({ answer }) => answer.success && answer.repeated === true)
  return { answered, settle: await settleOf(openings, isRepeated, tx) }
}

/**
 * The names that were in use, of calls that open estimates: all of them, or none.
 *
 * @throws RatelimitError `OTHER_RESERVATION`
 */
export function checkNames({ asked, found }: SentPayers): void {
  const used = usedIds(asked, found)
  if (used.length === 0 || used.length === asked.ids.length) return
  throw new RatelimitError(
    'OTHER_RESERVATION',
    'Some of the limits have a reservation with this id, and others have none. Nothing was charged.',
  )
}

/**
 * How the estimates of a call are settled. Those of a repeated one were charged before: others see their rows,
 * but the transaction holds them. The rows of new ones are not there for others before it commits.
 */
export async function settleOf(
  named: readonly Named[],
  isRepeated: boolean,
  tx: Database | undefined,
): Promise<Settle> {
  if (!isRepeated) return inRows(named)
  const [{ each }] = named as readonly [Named]
  const charged = await chargedIn(each.checker, tx)
  return inRows(named.map((own) => ({ ...own, chargedIn: charged })))
}

/**
 * @param isTogether Whether the limits pay one rate together. A limit without a row then notes its share.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
export async function openingsOf(
  calls: readonly LimiterCall[],
  { id, expires }: Naming,
  isTogether = false,
): Promise<readonly Opening[]> {
  const lengthMs = parseDuration(expires, 'expires')
  const named = await namedBy(calls, id, true)
  return named.map((own) => {
    const { checker, call } = own.each
    const hasPlan = !isPaidByFunds(own.each) && call.limiter !== checker.terms.limiter
    const opens = openedBy(lengthMs, call, hasPlan, isTogether)
    const opening = { checker: namesOf(checker).opener, call: requestFor(own.row, opens, 'take', 1) }
    return { ...own, opening }
  })
}

/**
 * The estimates of calls under a name.
 *
 * @throws RatelimitError `INVALID_OPTION` if two of the calls are for the same estimate.
 */
export async function namedBy(
  calls: readonly LimiterCall[],
  id: string,
  hasPlan: boolean,
): Promise<readonly Named[]> {
  checkOption(calls.length > 0, 'At least one request is needed.')
  const named: Named[] = []
  for (const each of calls) {
    named.push({ each, row: await keyOfName(each.checker, each.call.key, id), hasPlan })
  }
  const rows = named.length > 1 ? looksAt(named).map(nameOfRow) : []
  checkOption(
    rows.every((row, place) => rows.indexOf(row) === place),
    'Two of the requests are for one row, which can have the id only once.',
  )
  return named
}

/** The calls that open estimates and the shares in them, each with the calls whose payments it notes. */
export function notesOf(openings: readonly Opening[], payers: readonly Payer[]): NotesOfCalls {
  const notes = payers.flatMap(({ call, rows, purse }, place) => {
    const { opening: own } = openings[place] as Opening
    const opening = purse?.rate === 0 && call.call.rate > 0 ? dryRunOf(own) : own
    // A debt gets nothing back.
    const sharing = purse ? rows.filter(({ pays }) => pays !== 'debt') : []
    const shares = sharing.map((row, order): [FoundRow, readonly LimiterCall[]] => {
      const key = keyOfShare(opening.call.key, order, row.call.key)
      const { opener } = shareCheckers(call.checker)
      return [{ checker: opener, call: { ...opening.call, key }, isFound: true }, [row]]
    })
    return [[opening, rows] as const, ...shares]
  })
  return new Map(notes)
}

/** The call that opens an estimate that a dry run lets pass: its row notes that nothing was charged. */
function dryRunOf({ checker, call }: Opening['opening']): Opening['opening'] {
  return { checker, call: { ...call, limiter: noting(call.limiter, DRY_RUN) } }
}

const DRY_RUN = { rate: 0, at: Number.POSITIVE_INFINITY, before: 0, dryRun: 1 }
