import { remainingOf } from '../kernel/answers/capacity.ts'
import { afterCalls, type Outcome, paymentOf, returnedBy } from '../kernel/answers/outcome.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'
import { hasSeveralRows } from '../kernel/limits/limiter.ts'
import { applies } from '../kernel/store/answers.ts'
import type { Answers, Asked, Call, GrantedCall } from '../kernel/store/call.ts'
import type { Entry } from '../kernel/store/entry.ts'

/** The calls that a statement has granted. */
export function callsGranted(asked: readonly Asked[], answers: Answers): GrantedCall[] {
  return asked.flatMap((each, i) => {
    const decision = answers[i]
    if (!decision || decision.isOther || !applies(each, decision)) return []
    const places = Array.from({ length: Math.min(decision.granted, each.calls.length) }, (_, place) => place)
    const { purpose } = each.request
    const id = typeof purpose === 'object' ? purpose.id : undefined
    return places.map((place) => ({ call: each.request, decision, place, id }))
  })
}

/**
 * The entry of a granted call. Undefined if it has changed no count.
 *
 * @param own The limit of the calls, which says whose a row is if keys have several.
 */
export function entryOf(granted: GrantedCall, prefix: string, own: Limiter): Entry | undefined {
  const { call, decision, place, id, kind } = granted
  const { key, limiter, purpose } = call
  if (purpose === 'look' || purpose === 'block') return undefined
  const units = unitsOf(granted)
  if (units === 0) return undefined
  return {
    ...{
      prefix,
      ...ownerOf(key, own),
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
  // If a key has several rows, a grant fills a new one only.
  const isRepeated = hasSeveralRows(call.limiter) && (decision.state.prevCount ?? 0) > 0
  return call.purpose === 'add' && isRepeated ? 0 : paymentOf(outcome).rate
}

/** The limited key in the key of a row, and the grant. What is owed has no grant. */
function ownerOf(row: string, own: Limiter): Pick<Entry, 'key' | 'grant'> {
  const { key, name } = (own.stored && own.rowIn?.(row)) || { key: row }
  return { key, ...(name === undefined ? {} : { grant: name }) }
}

function entryKindOf({ rate, reserved, purpose }: Call): Entry['kind'] {
  if (purpose === 'add') return 'grant'
  if (reserved !== 0) return reserved > 0 ? 'reserve' : 'settle'
  return rate < 0 ? 'refund' : 'charge'
}
