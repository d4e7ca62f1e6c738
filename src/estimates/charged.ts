import { lru } from 'tiny-lru'
import type { Answered } from '../kernel/answers/answer.ts'
import { onceFor } from '../kernel/base/once.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import { found } from '../kernel/lists/enough.ts'
import { notedBy, type Paid } from '../kernel/lists/noting.ts'
import type { Request } from '../kernel/store/call.ts'
import type { ChargedIn } from './charged-in.ts'
import { type Opened, openedAt, openedIn } from './estimate-row.ts'
import { isPaidByFunds } from './funds.ts'
import type { SentPayers } from './send-payers.ts'

/** The estimate of one limit under a name. */
export interface Named {
  /** The call that was charged. In another process: a call on the same key. */
  readonly each: LimiterCall
  /** The key of its row. */
  readonly row: string
  /** Whether the call has the plan that was charged. */
  readonly hasPlan: boolean
  /** Where it was charged, if this process knows that. */
  readonly chargedIn?: ChargedIn
}

/** An estimate that is charged under a name, and the call that makes its row. */
export interface Opening extends Named {
  readonly opening: LimiterCall & { readonly call: Request }
}

// The open estimates that this process has charged. It knows their rows, so it settles them without a look. If
// one is not open any more, the settlement changes nothing, and is sent again after a look.

/** The most estimates of a limiter that are remembered. */
const MAX_ESTIMATES = 10_000

/** The estimates of a limiter by the keys of their rows. */
const rememberedBy = onceFor((_: Checker) => lru<Opened>(MAX_ESTIMATES))

/**
 * Remembers the estimates that a call has charged. A caller's transaction may be rolled back, and another
 * process may then open an estimate of the same name that ends sooner. So it remembers none of those.
 */
export function remember(
  openings: readonly Opening[],
  answered: readonly Answered[],
  { asked: { joined, rowOf }, found: { looks } }: SentPayers,
): void {
  // If one limit has denied, nothing was charged.
  if (joined || answered.some(({ answer }) => !answer.success)) return
  for (const [place, { each, row: key, opening }] of openings.entries()) {
    // What each row of funds has paid is only in rows.
    const paid = isPaidByFunds(each) ? undefined : paidByLimit(each, answered[place] as Answered)
    if (!paid) continue
    const row = found(rowOf, opening)
    // The row of a limit without a row notes its estimate by itself.
    const rate = paid.rate - (row.limiter.params['estimate'] ?? 0)
    const opened = openedIn(openedAt(found(looks, row).now, row.limiter.params, { ...paid, rate }))
    if (opened) rememberedBy(each.checker).set(key, opened)
  }
}

/** What a limit has paid. Undefined if it has paid nothing, or if the call was repeated. */
function paidByLimit({ call: { limiter } }: LimiterCall, { answer, paid }: Answered): Paid | undefined {
  if (!answer.success || answer.repeated || answer.wouldDeny) return undefined
  return notedBy(limiter, paid, answer)
}

/** Takes the estimates out of the memory. Undefined if one of them is not there. */
export function recall(named: readonly Named[]): Opened[] | undefined {
  const known = named.map(({ each: { checker }, row }) => {
    const opened = rememberedBy(checker).get(row)
    rememberedBy(checker).delete(row)
    return opened
  })
  return known.every((each) => each !== undefined) ? known : undefined
}
