import type { FoundRow, FundsTaking, ListStatus, PayingFunds, Purse } from '../estimates/funds.ts'
import { chargeAll } from '../estimates/send-calls.ts'
import type { Answered, PaidPart } from '../kernel/answers/answer.ts'
import { afterCalls, paidWith } from '../kernel/answers/outcome.ts'
import type { Allowed, LimitResult } from '../kernel/answers/results.ts'
import type { Decision } from '../kernel/store/call.ts'
import type { Entry } from '../kernel/store/entry.ts'
import { refundShared, takeShared } from './all-grants.ts'
import { read } from './read.ts'
import { payerOf, refunding } from './refunding.ts'
import {
  type Account,
  debtOf,
  leftOf,
  netOf,
  neverEnds,
  type Seen,
  type SeenGrant,
  seenAfter,
} from './seen.ts'
import { allowed, charged, deniedFor } from './usage.ts'

/** What the grants of a key pay. */
export function fundsOf(account: Account): PayingFunds {
  const { thresholds } = account.checker.terms.reporting
  const rows = thresholds.length > 0 ? MIN_LOCKED : 0
  return {
    charge: (call, tx) => takeShared(account, call, tx),
    chargeAll,
    refund: (parts, amount) => refundShared(account, parts, amount),
    take: async (taking, tx) => {
      const seen = await read(account, tx, { rate: taking.rate, rows })
      return taking.rate > 0 ? new Charging(account, taking, seen) : refunding(account, seen, -taking.rate)
    },
    payerOf: (part) => payerOf(account, part),
    giveBack: async (parts, amount, tx, as) =>
      refunding(account, await read(account, tx, { rate: 0 }), amount, parts, as),
  }
}

/** A row that pays. */
interface GrantPayer extends FoundRow {
  /** Undefined for the debt. */
  readonly grant: SeenGrant | undefined
}

/** The grants that are to pay a call, and the debt if it takes part. */
class Charging implements Purse {
  readonly rows: readonly GrantPayer[]
  readonly rate: number
  readonly has: number
  readonly #account: Account
  readonly #seen: Seen
  readonly #asked: number
  readonly #isNeverDenied: boolean

  constructor(account: Account, taking: FundsTaking, seen: Seen) {
    const { rate, rows } = chargingOf(account, taking, seen)
    const { dryRun } = account.checker.terms.reporting
    this.rows = rows
    // Where there is too little, a dry run lets the call pass and charges nothing.
    this.rate = dryRun && rows.length === 0 ? 0 : rate
    this.has = netOf(seen)
    this.#account = account
    this.#seen = seen
    this.#asked = rate
    this.#isNeverDenied = dryRun || taking.lacking === 'owed'
  }

  answer(decisions: readonly Decision[], status: ListStatus): Answered {
    const before = this.#before(decisions)
    const parts = status === 'charged' ? this.#parts(decisions) : []
    const after = parts.length > 0 ? this.#after(decisions) : before
    return {
      answer: this.#answer(before, after, decisions, status),
      paid: paidWith(sumOf(parts)),
      parts,
      lastsMs: this.#isNeverDenied ? Number.POSITIVE_INFINITY : Math.max(before.lastsUntil - before.now, 0),
    }
  }

  present(decisions: readonly Decision[]): Allowed {
    return allowed(this.#before(decisions))
  }

  hadEnough(decisions: readonly Decision[]): boolean {
    return this.#hadFor(this.rate, decisions)
  }

  #hadFor(rate: number, decisions: readonly Decision[]): boolean {
    return this.rows.some(({ pays }) => pays === 'rest as debt') || this.#had(decisions) >= rate
  }

  isWorse(decisions: readonly Decision[], later: Purse): boolean {
    return this.#isNeverDenied || this.#had(decisions) < later.has
  }

  /** What there was to take in the grants that were locked. Others may have taken from the rest meanwhile. */
  #had(decisions: readonly Decision[]): number {
    const before = this.#before(decisions)
    if (this.rows.length === 0) return netOf(before)
    const locked = new Set(this.rows.map(({ call }) => call.key))
    const grants = before.grants.filter(({ request }) => locked.has(request.key))
    const left = grants.map(({ request, look }) => leftOf({ request, look: { ...look, now: before.now } }))
    return Math.max(
      left.reduce((sum, each) => sum + each, -before.debt),
      0,
    )
  }

  #answer(before: Seen, after: Seen, decisions: readonly Decision[], status: ListStatus): LimitResult {
    if (status === 'repeated') return { ...allowed(before), repeated: true }
    if (status === 'charged' && this.rate === this.#asked) return charged(this.#account, before, after)
    return this.#hadFor(this.#asked, decisions) ? allowed(before) : deniedFor(before)
  }

  #parts(decisions: readonly Decision[]): PaidPart[] {
    return this.rows.flatMap(({ call, grant }, place) => {
      const decision = decisions[place]
      const amount = decision?.share ?? 0
      if (!decision || amount === 0) return []
      return [{ key: call.key, madeMs: grant && decision.state.lastRefill, amount }]
    })
  }

  #before(decisions: readonly Decision[]): Seen {
    return seenAfter(this.#account, this.#seen, this.rows, decisions, (_, decision) => decision)
  }

  #after(decisions: readonly Decision[]): Seen {
    return seenAfter(this.#account, this.#seen, this.rows, decisions, (place, decision) => {
      const { share: rate = 0 } = decision
      const { call } = this.rows[place] as GrantPayer
      return rate === 0 ? decision : afterCalls({ call: { ...call, rate }, decision }, 1)
    })
  }
}

export function sumOf(parts: readonly PaidPart[]): number {
  return parts.reduce((sum, { amount }) => sum + amount, 0)
}

/** With thresholds, at least this many grants are locked, so that what is left in all is exact. */
const MIN_LOCKED = 40

/** What to charge, by what a read has seen. */
function chargingOf(
  account: Account,
  taking: FundsTaking,
  seen: Seen,
): { rate: number; rows: readonly GrantPayer[] } {
  const { least, lacking } = taking
  const left = seen.grants.filter((grant) => leftOf(grant) > 0)
  const most = netOf(seen)
  // A call that may take less takes what it can lock.
  const rate = lacking === 'denied' ? Math.max(Math.min(taking.rate, most), least) : taking.rate
  const isEnough = rate <= most
  if (lacking === 'denied' && !isEnough) return { rate, rows: [] }
  const { thresholds } = account.checker.terms.reporting
  const paying = firstOf(left, rate + seen.debt)
  const locked = thresholds.length > 0 ? left.slice(0, Math.max(paying.length, MIN_LOCKED)) : paying
  const asked = { rate, kind: taking.as ?? 'charge' } as const
  const grants = (pays?: GrantPayer['pays']) => locked.map((grant) => grantRow(account, grant, asked, pays))
  const debt = (pays: GrantPayer['pays']) => debtRow(account, asked, pays)
  // A call that is never denied leaves an older debt to the next one.
  if (lacking === 'owed') return { rate, rows: isEnough ? grants() : [...grants(), debt('rest as debt')] }
  return { rate, rows: seen.debt > 0 ? [debt('debt'), ...grants('available after debt')] : grants() }
}

/** The first grants that have the amount together. */
function firstOf(grants: readonly SeenGrant[], amount: number): readonly SeenGrant[] {
  let [rest, length] = [amount, 0]
  while (rest > 0 && length < grants.length) rest -= leftOf(grants[length++] as SeenGrant)
  return grants.slice(0, length)
}

type AskedOf = { readonly rate: number; readonly kind: Entry['kind'] }

function grantRow(
  { checker }: Account,
  grant: SeenGrant,
  { rate, kind }: AskedOf,
  pays: GrantPayer['pays'],
): GrantPayer {
  const endsAt = neverEnds(grant) ? undefined : grant.look.state.windowStart
  const call = { ...grant.request, rate, purpose: 'take' } as const
  return { checker, call, grant, pays, endsAt, isFound: true, kind }
}

function debtRow(account: Account, { rate, kind }: AskedOf, pays: GrantPayer['pays']): GrantPayer {
  const call = { ...debtOf(account), rate, purpose: 'take' } as const
  return { checker: account.checker, call, grant: undefined, pays, isFound: true, kind }
}
