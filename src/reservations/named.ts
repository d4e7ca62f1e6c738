import type { Limiter } from '../algorithms/algorithm.ts'
import { opened as openedBy } from '../algorithms/estimate.ts'
import type { Answered } from '../answers/answer.ts'
import type { Allowed, LimitResult } from '../answers/results.ts'
import { checkOptions, type NamesOf } from '../base/check-options.ts'
import type { Checker, LimiterCall } from '../check/checker.ts'
import { isFunded } from '../check/funds.ts'
import type { Database } from '../database/database.ts'
import { parseDuration } from '../duration.ts'
import { CALL_NAMES, type CallOptions } from '../options/calls.ts'
import type { NamedReserveOptions, Naming } from '../options/reserve.ts'
import { callOf, checkKey, checkOption } from '../options/validate.ts'
import type { Call } from '../runtime/call.ts'
import { addUp } from '../several/add-up.ts'
import { chargedIn } from '../several/charged-in.ts'
import { answersIn, reportsOf } from '../several/limit-all.ts'
import { keyIn, keyOfName, namesOf } from '../several/names.ts'
import { askedOf, takeTogether, watchAll } from '../several/together.ts'
import { remember } from './charged.ts'
import { lookingAt, type Opening, type Part } from './part.ts'
import { settleOne } from './settle-named.ts'

// Reservations with a name. The open estimate is a row, which is made by the statement that charges the limit,
// and settled by the statement that corrects it.

/** The name of a reservation. */
export interface ReservationName {
  /** The key that was given to `reserve`. */
  readonly key: string
  /** The `id` that was given to `reserve`. */
  readonly id: string
}

const NAME_NAMES: NamesOf<ReservationName> = { key: true, id: true }

/** The answer to a call that reserves with a name, and how its estimate is settled. */
interface NamedAnswer {
  readonly answer: LimitResult
  /** The key of its row. */
  readonly row: string
  commit(actual: number, options?: CallOptions): Promise<Allowed>
}

/** Charges the estimate and gives it a name, or charges nothing if the name is in use. */
export async function reserveNamed(
  checker: Checker,
  estimate: Call,
  { id, expires, once, tx }: NamedReserveOptions,
): Promise<NamedAnswer> {
  checkOption(once === undefined, 'Use either id or once: an id is charged once, too.')
  const calls = [{ checker, call: estimate }]
  const named = await opening(calls, { id, expires })
  const [answered] = await chargeNamed(calls, named, tx)
  const { answer } = answered as Answered
  const isRepeated = answer.success && answer.repeated === true
  const [part] = (isRepeated ? await heldParts(named, tx) : named.parts) as readonly [Part]
  const commit: NamedAnswer['commit'] = async (actual, options = {}) => {
    checkOptions(options, CALL_NAMES)
    return settleOne(inPlan(part, options.limiter), actual, options.tx)
  }
  return { answer, commit, row: part.row }
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
    const asked = askedOf(calls, tx, ...named.openings)
    const decisions = await takeTogether(asked)
    const answered = answersIn(asked, decisions)
    remember(named, answered, asked, decisions)
    return answered
  }
  return watchAll(calls, tx, charge(), reportsOf)
}

export const NEEDS_ID = 'expires needs an id: the reservation then has a name.'

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
  checkOption(!calls.some(isFunded), 'Estimates on credits have no names: leave out id and expires.')
  const each = calls.map(async ({ checker, call }) => {
    const { key, limiter } = call
    const row = await keyOfName(checker, key, id)
    const limits = openedBy(lengthMs, limiter, limiter !== checker.config.limiter, rate ?? call.rate)
    const { opener } = namesOf(checker)
    const opened = callOf(opener.config.namespace.prefix, limits, row, {})
    const plan = { limiter, isPresent: false, hasPlan: true, charged: limiter }
    return { part: { checker, key, row, ...plan }, opening: { checker: opener, call: opened } }
  })
  const made = await Promise.all(each)
  const openings = made.map(({ opening }) => opening)
  checkDifferent(openings)
  return { parts: made.map(({ part }) => part), openings }
}

/** @throws RatelimitError `INVALID_OPTION` if two of the calls are for the same estimate. */
function checkDifferent(calls: readonly LimiterCall[]): void {
  const rows = new Set(addUp(calls).values())
  checkOption(
    rows.size === calls.length,
    'Two of the requests are for one row, which can have the id only once.',
  )
}

/** The part under the customer's present plan, if one is given. */
export function inPlan(part: Part, present: Limiter | undefined): Part {
  return present === undefined ? part : { ...part, limiter: present, isPresent: true }
}

/** Settles the reservation of a name, as its `commit` does. */
export async function settleName(
  checker: Checker,
  name: ReservationName,
  actual: number,
  options: CallOptions,
): Promise<Allowed> {
  checkOptions(name, NAME_NAMES, 'The name of a reservation')
  checkOption(
    typeof name.key === 'string',
    'settle needs the text of a reservation, or its name: { key, id }.',
  )
  const { hash, namespace } = checker.config
  const key = hash ? await hash(name.key) : name.key
  checkKey(key, namespace.prefix)
  const part = await partNamed(checker, key, name.id, options.limiter)
  return settleOne(part, actual, options.tx)
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
  const parts = await Promise.all(
    calls.map(({ checker, call }, place) => partNamed(checker, call.key, id, requests[place]?.limiter)),
  )
  checkDifferent(lookingAt(parts))
  return parts
}

async function partNamed(
  checker: Checker,
  key: string,
  id: string,
  limiter: Limiter | undefined,
): Promise<Part> {
  return partOf(checker, await keyOfName(checker, key, id), limiter)
}

/** Settles a reservation by the key of its row, which a text has. */
export function settleText(
  checker: Checker,
  row: string,
  actual: number,
  options: CallOptions,
): Promise<Allowed> {
  return settleOne(partOf(checker, row, options.limiter), actual, options.tx)
}

/** The estimate in a row. */
export function partOf(checker: Checker, row: string, limiter: Limiter | undefined): Part {
  const isPresent = limiter !== undefined
  const own = limiter ?? checker.config.limiter
  return { checker, key: keyIn(row), row, limiter: own, isPresent, hasPlan: isPresent }
}
