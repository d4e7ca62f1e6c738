import { lru } from 'tiny-lru'
import { type Opened, openedAt, openedIn, type Paid } from '../algorithms/estimate.ts'
import type { Answered } from '../answers/answer.ts'
import { onceFor } from '../base/once-for.ts'
import type { LimiterCall } from '../check/checker.ts'
import type { Decisions } from '../several/all-or-nothing.ts'
import { found } from '../several/enough.ts'
import { notedBy } from '../several/noting.ts'
import type { Asked } from '../several/together.ts'
import type { Opening, Part } from './part.ts'

// The open estimates that this process has charged. It knows their rows, so it settles them without a look. If
// one is not open any more, the settlement changes nothing, and is sent again after a look.

/** The most estimates of a limiter that are remembered. */
const MAX_REMEMBERED = 10_000

/** The estimates of a limiter by the keys of their rows. */
const estimatesOf = onceFor(() => lru<Opened>(MAX_REMEMBERED))

/**
 * Remembers the estimates that a call has charged. A caller's transaction may be rolled back, and another
 * process may then open an estimate of the same name that ends sooner. So it remembers none of those.
 */
export function remember(
  { parts, openings }: Opening,
  answered: readonly Answered[],
  { joined, rowOf }: Asked,
  { looks }: Decisions,
): void {
  // If one limit has denied, nothing was charged.
  if (joined || answered.some(({ answer }) => !answer.success)) return
  for (const [place, part] of parts.entries()) {
    // What each row of funds has paid is only in rows.
    const paid = part.funded ? undefined : paidBy(part, answered[place] as Answered)
    if (!paid) continue
    const row = found(rowOf, openings[place] as LimiterCall)
    // The row of a limit without a row notes its estimate by itself.
    const rate = paid.rate - (row.limiter.params['estimate'] ?? 0)
    const opened = openedIn(openedAt(found(looks, row).now, row.limiter.params, { ...paid, rate }))
    if (opened) estimatesOf(part.checker).set(part.row, opened)
  }
}

/** What a limit has paid. Undefined if it has paid nothing, or if the call was repeated. */
function paidBy({ limiter }: Part, { answer, paid }: Answered): Paid | undefined {
  if (!answer.success || answer.repeated || answer.wouldDeny) return undefined
  return notedBy(limiter, paid, answer)
}

/** Takes the estimates of parts out of the memory. Undefined if one of them is not there. */
export function recall(parts: readonly Part[]): Opened[] | undefined {
  const known = parts.map(({ checker, row }) => {
    const opened = estimatesOf(checker).get(row)
    estimatesOf(checker).delete(row)
    return opened
  })
  return known.every((each) => each !== undefined) ? known : undefined
}
