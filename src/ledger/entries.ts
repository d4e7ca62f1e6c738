import { remainingOf } from '../kernel/answers/capacity.ts'
import { afterCalls, type Outcome, paymentOf, returnedBy } from '../kernel/answers/outcome.ts'
import { fromHex } from '../kernel/engine/hex-id.ts'
import { DEBT, GRANT } from '../kernel/sql/grants.ts'
import { applies } from '../kernel/store/ask.ts'
import type { Answers, Asked, Call, GrantedCall } from '../kernel/store/call.ts'
import type { Entry } from '../kernel/store/entry.ts'

/** The calls that a statement has granted. */
export function callsGranted(asked: readonly Asked[], answers: Answers): GrantedCall[] {
  return asked.flatMap((each, i) => {
    const decision = answers[i]
    if (!decision || decision.isOther || !applies(each, decision)) return []
    const places = Array.from({ length: Math.min(decision.granted, each.calls.length) }, (_, place) => place)
    return places.map((place) => ({ call: each.request, decision, place }))
  })
}

/**
 * The entry of a granted call. Undefined if it has changed no count.
 *
 * @param hasGrants Whether the rows are those of credits: the grants of keys, and what these owe.
 */
export function entryOf(granted: GrantedCall, prefix: string, hasGrants: boolean): Entry | undefined {
  const { call, decision, place, id, kind } = granted
  const { key, limiter, purpose } = call
  if (purpose === 'look' || purpose === 'block') return undefined
  const units = unitsOf(granted)
  if (units === 0) return undefined
  return {
    ...{
      prefix,
      ...(hasGrants ? grantIn(key) : { key }),
      kind: kind ?? entryKindOf(call),
      units,
      at: decision.now,
    },
    remaining: remainingOf(limiter, afterCalls(granted, place + 1)),
    ...(limiter.algorithm.kind === 'window' ? { start: decision.state.windowStart } : {}),
    ...(id === undefined ? {} : { id }),
  }
}

function unitsOf(outcome: Outcome): number {
  const { call, decision } = outcome
  if (call.rate < 0) return -returnedBy(outcome)
  // A grant of credits fills a new row only.
  const isRepeated = call.limiter.algorithm.name === 'credits' && (decision.state.prevCount ?? 0) > 0
  return call.purpose === 'grant' && isRepeated ? 0 : paymentOf(outcome).rate
}

/** The limited key and the grant in the key of a row of credits. What is owed has no grant. */
function grantIn(row: string): Pick<Entry, 'key' | 'grant'> {
  if (row.endsWith(DEBT)) return { key: row.slice(0, -DEBT.length) }
  const at = row.lastIndexOf(GRANT)
  return { key: row.slice(0, at), grant: fromHex(row.slice(at + GRANT.length)) ?? '' }
}

function entryKindOf({ rate, reserved, purpose }: Call): Entry['kind'] {
  if (purpose === 'grant') return 'grant'
  if (reserved !== 0) return reserved > 0 ? 'reserve' : 'settle'
  return rate < 0 ? 'refund' : 'charge'
}
