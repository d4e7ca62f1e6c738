import { isRequest, type Outcome, unlimitedOutcome } from '../answers/outcome.ts'
import { eachOnce } from '../base/arrays.ts'
import { type At, isCallTime } from '../engine/bounds.ts'
import type { Checker, LimiterCall } from '../engine/checker.ts'
import { lookAtGate, opensAt } from '../engine/gate.ts'
import { checkOption } from '../options/validate.ts'
import type { Decision } from '../store/call.ts'
import { addUp } from './add-up.ts'
import { found } from './enough.ts'
import { fits } from './parts.ts'
import type { Found, RowRequest } from './sending.ts'
import type { Listed } from './units-in-rows.ts'

/** Calls, and the rows that they charge. */
export interface CombinedCalls extends Listed {
  /** The row of each call that the database decides. */
  readonly rowOf: ReadonlyMap<LimiterCall, RowRequest>
  /**
   * The outcomes of calls without a limit. Their clocks may fail, so they are read before anything is charged.
   */
  readonly unlimited: ReadonlyMap<LimiterCall, Outcome>
  /** The rows of ids, for calls that are charged once. */
  readonly ids: readonly RowRequest[]
  /** The rows of gates that deny the call while its key is blocked. */
  readonly gateOf: ReadonlyMap<LimiterCall, RowRequest>
}

/**
 * @param used The calls that use up ids, for calls that are charged once.
 * @param asked The calls that may have to pass gates. Default: all, because each charges its own row.
 */
export function askedOf(
  calls: readonly LimiterCall[],
  tx: At,
  used: readonly (LimiterCall | undefined)[] = [],
  asked: readonly LimiterCall[] = calls,
): CombinedCalls {
  const ids = used.filter((id) => id !== undefined)
  const gated = asked.filter(({ checker, call }) => checker.terms.gate && call.purpose === 'take')
  const gates = gated.flatMap(({ checker, call }) => passing(checker, call.key) ?? [])
  const all = ids.length + gates.length === 0 ? calls : [...calls, ...ids, ...gates]
  const checkers = eachOnce(all.map(({ checker }) => checker))
  const [first] = checkers
  checkOption(first !== undefined, 'At least one request is needed.')
  const { db } = first.rows.connection
  checkOption(
    checkers.every(({ rows }) => rows.connection.db === db),
    'The limiters of one call must have the same db.',
  )
  // If a clock fails, it must fail before any SQL.
  for (const { rows } of checkers) rows.namespace.clock?.()
  const joined = first.joined(tx)
  const rowOf = addUp(all)
  const unlimited = calls.filter(({ call }) => !isRequest(call))
  return {
    calls,
    checkers,
    joined,
    time: isCallTime(tx) ? tx : undefined,
    rowOf,
    unlimited: valuesOf(unlimited, ({ call, checker }) => unlimitedOutcome(call, checker.clockMs())),
    ids: ids.map((id) => found(rowOf, id)),
    gateOf: valuesOf(gated, (_, place) => found(rowOf, gates[place] as LimiterCall)),
  }
}

/** The look at the gate of a key, which denies the whole list if the key may not pass. */
function passing(owner: Checker, key: string): LimiterCall | undefined {
  const look = lookAtGate(owner, key)
  return look && { ...look, call: { ...look.call, atLeast: 1 } }
}

const NO_CALLS: ReadonlyMap<LimiterCall, never> = new Map<LimiterCall, never>()

/** A value for each of the calls. Most lists have no such calls. */
function valuesOf<T>(
  calls: readonly LimiterCall[],
  make: (each: LimiterCall, place: number) => T,
): ReadonlyMap<LimiterCall, T> {
  return calls.length === 0 ? NO_CALLS : new Map(calls.map((each, place) => [each, make(each, place)]))
}

/** Whether one of the ids was used before, so that nothing was charged. */
export function isRepeated(asked: CombinedCalls, decisions: Found): boolean {
  return usedIds(asked, decisions).length > 0
}

export function usedIds({ ids }: CombinedCalls, { looks }: Found): readonly RowRequest[] {
  return ids.filter((id) => !fits(id, found(looks, id)))
}

/** When the call's key is not blocked any more. Undefined if it is not blocked now. */
export function blockedUntil(asked: CombinedCalls, { looks }: Found, each: LimiterCall): number | undefined {
  const gate = asked.gateOf.get(each)
  return gate && opensAt(gate, found(looks, gate))
}

/** The state of a limit without a row. If its key can be blocked, the block's row has the database's time. */
export function withoutRow(
  { unlimited, gateOf }: CombinedCalls,
  looks: Found['looks'],
  each: LimiterCall,
): Decision {
  const { decision } = found(unlimited, each)
  const gate = gateOf.get(each)
  return gate ? { ...decision, now: found(looks, gate).now } : decision
}
