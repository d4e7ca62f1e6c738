import { type Answered, AnswerTo, type PaidPart } from '../kernel/answers/answer.ts'
import { onceFor } from '../kernel/base/once.ts'
import { exactNumbers, mustHave } from '../kernel/database/rows.ts'
import { type Row, run } from '../kernel/database/run.ts'
import { kept, type Statement, type Value } from '../kernel/database/statement.ts'
import { type StatementMessage, timed } from '../kernel/diagnostics.ts'
import type { At } from '../kernel/engine/bounds.ts'
import { Checker, type LimiterCall } from '../kernel/engine/checker.ts'
import { answerTo } from '../kernel/engine/layers.ts'
import { freshState } from '../kernel/limits/limiter.ts'
import { numberArray, textArray } from '../kernel/sql/calls.ts'
import { NUMBERS } from '../kernel/sql/columns.ts'
import { timeAndState } from '../kernel/store/answers.ts'
import {
  type Answers,
  type Asked,
  type Call,
  type Decision,
  lookAt,
  requestFor,
} from '../kernel/store/call.ts'
import type { Target } from '../kernel/store/store.ts'
import { ALL_GRANTS } from './grant.ts'
import type { Account } from './seen.ts'
import { type GrantsSource, grantsStatement } from './sql/grants.ts'
import { takeGrantsStatement } from './sql/take-grants.ts'

// Calls on all grants of a key. They share statements as other calls do.

/** An answer, and what the grants have paid, which is worked out when a reservation asks for it. */
class AnswerOfAll extends AnswerTo {
  /** Equal calls are paid one after the other, and the first one pays what the key owes. */
  get parts(): readonly PaidPart[] {
    const { call, decision, place } = this.outcome
    const from = place === 0 ? Number.NEGATIVE_INFINITY : place * call.rate
    const paid = (decision.rows ?? []).map((row) => {
      const [share = 0, madeMs = 0, position = 0] = exactNumbers(row[NUMBERS]).slice(-3)
      return { key: String(row['row']), share, madeMs, position }
    })
    let sum = 0
    return paid
      .toSorted((one, other) => one.position - other.position)
      .flatMap(({ key, share, madeMs }) => {
        const before = Math.max(sum, from)
        sum += share
        const amount = Math.min(sum, (place + 1) * call.rate) - before
        return amount > 0 ? [{ key, madeMs, amount }] : []
      })
  }
}

/** The checker of calls on all grants of a key. */
class CheckerOfAll extends Checker {
  override answer(call: Call, tx: At): Promise<Answered> {
    return this.decide(call, tx).then((outcome) => new AnswerOfAll(outcome, this.terms.reporting))
  }
}

const checkerOfAll = onceFor(
  ({ rows, terms, alone }: Checker) =>
    new CheckerOfAll({
      rows: { ...rows, asks: { take, look, make: makeNone } },
      terms: { ...terms, limiter: ALL_GRANTS },
      alone,
    }),
)

/**
 * Takes a rate from the grants in their order, or takes nothing, by one statement, which calls share. Undefined
 * if the call needs more than that: the state before it, its entries, a gate, or the locks of a transaction.
 */
export function takeShared(
  account: Account,
  { rate, purpose, atLeast }: Call,
  tx: At,
): Answered | Promise<Answered> | undefined {
  const { checker, key } = account
  const isPlain = rate > 0 && purpose === 'take' && atLeast === null
  const { reporting, gate } = checker.terms
  if (!isPlain || reporting.thresholds.length > 0 || gate) return undefined
  if (checker.joined(tx) || checker.rows.namespace.ledger) return undefined
  return answerTo(checkerOfAll(checker), requestFor(key, ALL_GRANTS, purpose, rate), tx)
}

/**
 * The call that gives an amount back to the one grant that has paid. It is granted if that grant can give back
 * all. Undefined if there is no such grant, or if the call needs its entries.
 */
export function refundShared(
  account: Account,
  [part, ...more]: readonly PaidPart[],
  amount: number,
): LimiterCall | undefined {
  const { checker, key } = account
  const isOne = part?.madeMs !== undefined && more.length === 0
  if (!isOne || amount <= 0 || checker.rows.namespace.ledger) return undefined
  const call = requestFor(key, ALL_GRANTS, 'adjust', -amount, part.madeMs, part.key)
  return { checker: checkerOfAll(checker), call }
}

/** A key with fewer rows is read whole. To leave some out costs more there than they do. */
export const MANY = 51

/** The rows of a key, at most {@link MANY}. */
export async function lookAtGrants(account: Account, tx: At): Promise<readonly Row[]> {
  const { decision } = await checkerOfAll(account.checker).decide(lookAt(account.key, ALL_GRANTS), tx)
  return decision.rows ?? []
}

async function look(target: Target, asked: readonly Asked[]): Promise<Answers> {
  const keys = asked.map(({ request }) => request.key)
  const rows = await askForGrants(target, 'grants', grantsStatement, keys, { ended: 0, most: MANY })
  return rowsOfEach(asked, rows).map((own) => {
    const [now = 0] = exactNumbers(own[0]?.[NUMBERS])
    const { params } = ALL_GRANTS
    return { now, state: freshState(ALL_GRANTS, now, params), granted: 0, params, rows: own }
  })
}

async function take(target: Target, asked: readonly Asked[], waits: boolean): Promise<Answers> {
  const { commit } = target
  const requests = asked.map(({ request }) => request)
  const givesBack = requests[0]?.purpose === 'adjust'
  const isMany = asked.length > 1
  const keys = requests.map(({ key }) => key)
  const statement = (source: GrantsSource) =>
    takeGrantsStatement({ ...source, commit, waits, isMany, givesBack })
  const all = (numbers: readonly (number | null)[]) => (isMany ? numberArray(numbers) : (numbers[0] ?? null))
  const values: Record<string, Value> = {
    rate: all(requests.map(({ rate }) => rate)),
    calls: all(asked.map(({ calls }) => calls.length)),
  }
  if (!isMany) values['key'] = mustHave(keys[0])
  if (givesBack) {
    const payers = requests.map(({ payer }) => mustHave(payer))
    values['payer'] = isMany ? textArray(payers) : mustHave(payers[0])
    values['paidWindowStart'] = all(requests.map((each) => each.paidWindowStart))
  }
  const does = givesBack ? 'adjust' : 'take'
  const name = `${does} grants ${commit} ${waits} ${isMany}`
  const rows = await askForGrants(target, name, statement, keys, values, does)
  return rowsOfEach(asked, rows).map((own): Decision | undefined => {
    const [row] = own
    if (row?.['decided'] !== true) return undefined
    const numbers = exactNumbers(row[NUMBERS])
    const { now, state } = timeAndState(numbers, ALL_GRANTS.algorithm)
    return { now, state, granted: mustHave(numbers[0]), params: ALL_GRANTS.params, rows: own }
  })
}

/** No call makes a grant. */
async function makeNone(): Promise<Answers> {
  return []
}

/** The rows of each key. */
function rowsOfEach(asked: readonly Asked[], rows: readonly Row[]): Row[][] {
  const found = asked.map((): Row[] => [])
  for (const row of rows) found[Number(row['place']) - 1]?.push(row)
  return found
}

/** Sends a statement on the grants of keys. */
export function askForGrants(
  {
    connection,
    table,
    namespace: { prefix, clock: clockMs },
  }: Pick<Target, 'connection' | 'table' | 'namespace'>,
  name: string,
  statement: (source: GrantsSource) => Statement,
  keys: readonly string[],
  more: Readonly<Record<string, Value>>,
  does: StatementMessage['statement'] = 'look',
): Promise<readonly Row[]> {
  const clock = clockMs?.() ?? null
  const injectedClock = clock !== null
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${injectedClock} ${guarded}`, () =>
      statement({ table: table.table, injectedClock, guarded }),
    )
  const values = { prefix, clock, key: textArray(keys), ...more }
  return timed({ prefix, statement: does, keys: keys.length }, () =>
    run(connection, [table.size], statementFor, values, {}),
  )
}
