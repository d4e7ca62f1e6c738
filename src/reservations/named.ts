import type { Limiter } from '../algorithms/algorithm.ts'
import { opened as openedBy } from '../algorithms/estimate.ts'
import type { Answered } from '../answers/answer.ts'
import type { Allowed } from '../answers/results.ts'
import { checkOptions } from '../base/check-options.ts'
import type { LimiterCall } from '../check/checker.ts'
import { FUNDED_LIMITER, isFunded } from '../check/funds.ts'
import { watched } from '../check/layers.ts'
import type { Database } from '../database/database.ts'
import { parseDuration } from '../duration.ts'
import * as CALLS from '../options/call-table.ts'
import type { CallOptions, Requested } from '../options/calls.ts'
import type { NamedReserveOptions, Naming } from '../options/reserve.ts'
import type { ReservationName } from '../options/settle.ts'
import * as SETTLING from '../options/settle.ts'
import { checkOption } from '../options/validate.ts'
import { lookAt } from '../runtime/look-at.ts'
import { addUp } from '../several/add-up.ts'
import { callsOf } from '../several/calls-of.ts'
import { chargedIn } from '../several/charged-in.ts'
import { reportsOf, sendCalls } from '../several/limit-all.ts'
import { keyOfName, namesOf } from '../several/names.ts'
import { checkNames } from '../several/together.ts'
import { remember } from './charged.ts'
import { lookingAt, notesOf, type Opening, type Part, takenFrom } from './part.ts'
import { settleOne } from './settle-named.ts'

// Reservations with a name. The open estimate is a row, which is made by the statement that charges the limit,
// and settled by the statement that corrects it.

/** The answer to a call that reserves with a name, and how its estimate is settled. */
interface NamedAnswer {
  readonly answered: Answered
  commit(actual: number, options?: CallOptions): Promise<Allowed>
}

/** Charges the estimate and gives it a name, or charges nothing if the name is in use. */
export async function reserveNamed(
  estimate: LimiterCall,
  { id, expires, once, tx }: Omit<NamedReserveOptions, 'limiter'>,
): Promise<NamedAnswer> {
  checkOption(once === undefined, 'Use either id or once: an id is charged once, too.')
  const calls = [estimate]
  const named = await opening(calls, { id, expires })
  const [answered] = (await chargeNamed(calls, named, tx)) as [Answered]
  const { answer } = answered
  const isRepeated = answer.success && answer.repeated === true
  const [part] = (isRepeated ? await heldParts(named, tx) : named.parts) as readonly [Part]
  const commit: NamedAnswer['commit'] = async (actual, options = {}) => {
    checkOptions(options, CALLS.call)
    return settleOne(inPlan(part, options.limiter), actual, options.tx)
  }
  return { answered, commit }
}

/**
 * The estimates of a repeated call. Others see their rows, but the transaction holds them. The rows of new ones
 * are not there for others before it commits.
 */
export async function heldParts({ parts }: Opening, tx: Database | undefined): Promise<readonly Part[]> {
  const [{ checker }] = parts as readonly [Part]
  const charged = await chargedIn(checker, tx)
  return parts.map((part) => ({ ...part, chargedIn: charged }))
}

/**
 * Charges the estimates and opens their rows, all or none. During an outage it always throws, because without
 * its row an estimate would not be settled.
 */
export function chargeNamed(
  calls: readonly LimiterCall[],
  named: Opening,
  tx: Database | undefined,
): Promise<Answered[]> {
  const charge = async () => {
    const { answered, asked, decisions } = await sendCalls(calls, tx, (payers) => ({
      notes: notesOf(named, payers),
    }))
    checkNames(asked, decisions)
    remember(named, answered, asked, decisions)
    return answered
  }
  return watched(calls, tx, charge, reportsOf)
}

/**
 * @param rate What a limit without a row notes as its estimate. Default: the rate of its call.
 * @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION`
 */
export async function opening(
  calls: readonly LimiterCall[],
  { id, expires }: Naming,
  rate?: number,
): Promise<Opening> {
  const lengthMs = parseDuration(expires, 'expires')
  const each = calls.map(async (own) => {
    const { checker, call } = own
    const { key, limiter } = call
    const row = await keyOfName(checker, key, id)
    const funded = isFunded(own) ? own : undefined
    const hasPlan = !funded && limiter !== checker.terms.limiter
    const opens = openedBy(lengthMs, limiter, hasPlan, rate ?? call.rate)
    const { opener } = namesOf(checker)
    const opened = takenFrom(lookAt(row, opens))
    const plan = { limiter, isPresent: false, hasPlan: true, charged: limiter }
    return { part: { checker, key, row, funded, ...plan }, opening: { checker: opener, call: opened } }
  })
  const made = await Promise.all(each)
  const openings = made.map(({ opening }) => opening)
  checkDifferent(openings)
  return { parts: made.map(({ part }) => part), openings }
}

/** @throws RatelimitError `INVALID_OPTION` if two of the calls are for the same estimate. */
function checkDifferent(calls: readonly LimiterCall[]): void {
  if (calls.length === 1) return
  const rows = new Set(addUp(calls).values())
  checkOption(
    rows.size === calls.length,
    'Two of the requests are for one row, which can have the id only once.',
  )
}

/**
 * The part under the customer's present plan, if one is given.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function inPlan(part: Part, present: Limiter | undefined): Part {
  checkOption(present === undefined || !part.funded, FUNDED_LIMITER)
  return present === undefined ? part : { ...part, limiter: present, isPresent: true }
}

/** Settles the reservation of a name, as its `commit` does. */
export async function settleName(
  ratelimit: Requested['ratelimit'],
  name: ReservationName,
  actual: number,
  { limiter, tx }: CallOptions,
): Promise<Allowed> {
  checkOptions(name, SETTLING.reservation, 'The name of a reservation')
  checkOption(typeof name.key === 'string', 'settle needs the name of a reservation: { key, id }.')
  const requests = [{ ratelimit, key: name.key, limiter }]
  const calls = await callsOf(requests, CALLS.spendRequest, 0)
  const [part] = (await partsNamed(requests, calls, name.id)) as [Part]
  return settleOne(part, actual, tx)
}

/**
 * The estimates of a name, in the order of the calls.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export async function partsNamed(
  requests: readonly { readonly limiter?: Limiter | undefined }[],
  calls: readonly LimiterCall[],
  id: string,
): Promise<Part[]> {
  checkOption(calls.length > 0, 'At least one request is needed.')
  const parts = await Promise.all(calls.map((call, place) => partNamed(call, id, requests[place]?.limiter)))
  checkDifferent(lookingAt(parts))
  return parts
}

async function partNamed(call: LimiterCall, id: string, present: Limiter | undefined): Promise<Part> {
  const { checker } = call
  const { key } = call.call
  const row = await keyOfName(checker, key, id)
  return partOf({ checker, key, row, funded: isFunded(call) ? call : undefined }, present)
}

/** The estimate in a row. */
export function partOf(
  own: Pick<Part, 'checker' | 'key' | 'row' | 'funded'>,
  present: Limiter | undefined,
): Part {
  const { checker, key, row, funded } = own
  const limiter = funded?.call.limiter ?? checker.terms.limiter
  return inPlan({ checker, key, row, funded, limiter, isPresent: false, hasPlan: false }, present)
}
