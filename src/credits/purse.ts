import type { FoundRow, FundsTaking, PayingFunds, Purse } from '../estimates/funds.ts'
import { chargeAll } from '../estimates/send-calls.ts'
import type { PaidPart } from '../kernel/answers/answer.ts'
import { behindBlock } from '../kernel/answers/capacity.ts'
import { afterCalls, paidWith } from '../kernel/answers/outcome.ts'
import type { Usage } from '../kernel/answers/results.ts'
import type { Source } from '../kernel/lists/shares.ts'
import type { Pays } from '../kernel/sql/list-row.ts'
import type { Decision, Request } from '../kernel/store/call.ts'
import { refundShared, takeShared } from './all-grants.ts'
import { read, readUsage } from './read.ts'
import { payerOf, refunding } from './refunding.ts'
import { type Account, debtOf, leftOf, netOf, type Seen, type SeenGrant, seenAfter } from './seen.ts'
import { allowed, charged, deniedFor } from './usage.ts'

/** What the grants of a key pay. */
export function fundsOf(account: Account): PayingFunds {
  const { thresholds } = account.checker.terms.reporting
  const fewest = thresholds.length > 0 ? MIN_LOCKED : 0
  return {
    charge: (call, tx) => takeShared(account, call, tx),
    chargeAll,
    look: async (tx) => (await readUsage(account.checker, [account.key], tx))[0] as Usage,
    refund: (parts, amount) => refundShared(account, parts, amount),
    take: async (taking, tx) => {
      const { rate, least, parts, mayBeBlocked } = taking
      const rows = mayBeBlocked ? ALL : fewest
      if (rate > 0) return charging(account, taking, await read(account, tx, { rate, least, rows }))
      // The rows that have paid the parts are known.
      return refunding(account, taking, await read(account, tx, { rate: parts ? 0 : rate }))
    },
    payerOf: (part) => payerOf(account, part),
  }
}

/** More grants than a key has. */
const ALL = 2 ** 31

/** The grants that are to pay a call, and the debt if it takes part. */
function charging(account: Account, taking: FundsTaking, seen: Seen): Purse {
  const { rate: asked, rows } = chargingOf(account, taking, seen)
  const { dryRun } = account.checker.terms.reporting
  // Where there is too little, a dry run lets the call pass and charges nothing.
  const rate = dryRun && rows.length === 0 ? 0 : asked
  const isNeverDenied = dryRun || taking.lacking === 'owed'
  const isShared = taking.lacking === 'left to others'
  /** What there was to take in the rows that were locked. Others may have taken from the rest meanwhile. */
  const hadIn = (decisions: readonly Decision[]) => {
    const before = seenAfter(account, seen, rows, decisions)
    if (rows.length === 0) return netOf(before)
    const left = rows.map((row, place) => {
      const look = { ...(decisions[place] as Decision), now: before.now }
      return isDebt(row) ? 0 : leftOf({ request: row.call, look })
    })
    return Math.max(
      left.reduce((sum, each) => sum + each, -before.debt),
      0,
    )
  }
  const hadFor = (amount: number, decisions: readonly Decision[]) =>
    rows.some(({ pays }) => pays === 'rest as debt') || hadIn(decisions) >= amount
  return {
    rows,
    rate,
    has: netOf(seen),
    others: () => othersIn(seen, rows),
    lacked: (decisions) => {
      if (hadFor(rate, decisions)) return undefined
      // There was enough when it was read. So others were faster, and less may do.
      const isOvertaken = (isShared || taking.least < asked) && asked <= netOf(seen)
      return isNeverDenied || isOvertaken ? Number.NEGATIVE_INFINITY : hadIn(decisions)
    },
    answer: (decisions, status, blockedUntil) => {
      const before = seenAfter(account, seen, rows, decisions)
      const parts = status === 'charged' ? partsIn(rows, decisions) : []
      const answerIn = () => {
        if (status === 'repeated') return { ...allowed(before), repeated: true } as const
        if (status === 'charged' && rate === asked)
          return charged(account, before, seenAfter(account, seen, rows, decisions, afterShare))
        const isAllowed = isShared || hadFor(asked, decisions)
        if (blockedUntil === undefined) return isAllowed ? allowed(before) : deniedFor(before)
        const lasts = isShared || (isAllowed && blockedUntil < seen.lastsUntil)
        return behindBlock(deniedFor(before, lasts ? blockedUntil : undefined), blockedUntil)
      }
      return {
        answer: answerIn(),
        paid: paidWith(sumOf(parts)),
        parts,
        lastsMs: isNeverDenied ? Number.POSITIVE_INFINITY : Math.max(seen.lastsUntil - before.now, 0),
      }
    },
  }
}

/** The grants that can pay beside the rows. */
function othersIn({ grants, debt }: Seen, rows: readonly FoundRow[]): Source[] {
  const taken = new Set(rows.map(({ call }) => call.key))
  const rest = grants.filter((grant) => !taken.has(grant.request.key) && leftOf(grant) > 0)
  return rest.map(({ request: call, look: snapshot }) => {
    const pays = debt > 0 ? 'available after debt' : undefined
    return { call, snapshot, pays, endsAt: snapshot.state.windowStart }
  })
}

/** The row after it has paid its share. */
function afterShare({ call }: FoundRow, decision: Decision) {
  const { share: rate = 0 } = decision
  return rate === 0 ? decision : afterCalls({ call: { ...call, rate }, decision }, 1)
}

function partsIn(rows: readonly FoundRow[], decisions: readonly Decision[]): PaidPart[] {
  return decisions.flatMap(({ share = 0, state }, place) => {
    const row = rows[place] as FoundRow
    return share === 0
      ? []
      : [{ key: row.call.key, madeMs: isDebt(row) ? undefined : state.lastRefill, amount: share }]
  })
}

function isDebt({ pays }: FoundRow): boolean {
  return pays === 'debt' || pays === 'rest as debt'
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
): { rate: number; rows: readonly FoundRow[] } {
  const { checker } = account
  const { least, lacking, as: kind = 'charge' } = taking
  const left = seen.grants.filter((grant) => leftOf(grant) > 0)
  const most = netOf(seen)
  // A call that may take less takes what it can lock.
  const rate = lacking === 'denied' ? Math.max(Math.min(taking.rate, most), least) : taking.rate
  const isEnough = rate <= most
  if (lacking === 'denied' && !isEnough) return { rate, rows: [] }
  const paying = firstOf(left, rate + seen.debt)
  const { thresholds } = checker.terms.reporting
  const locked = thresholds.length > 0 ? left.slice(0, Math.max(paying.length, MIN_LOCKED)) : paying
  const row = (request: Request, pays?: Pays, endsAt?: number): FoundRow => {
    return { checker, call: { ...request, rate, purpose: 'take' }, pays, endsAt, isFound: true, kind }
  }
  const grants = (pays?: Pays) =>
    locked.map(({ request, look }) => row(request, pays, look.state.windowStart))
  const debt = (pays: Pays) => row(debtOf(account), pays)
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
