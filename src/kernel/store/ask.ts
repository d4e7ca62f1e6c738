import type { Connection } from '../database/connection.ts'
import { atMost, exactNumbers, mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import { type Row, run } from '../database/run.ts'
import { kept, type Statement, type Value } from '../database/statement.ts'
import { channels, type StatementMessage, timed } from '../diagnostics.ts'
import type { EndedPeriod, Numbers, Params, StateColumn, StoredLimiter } from '../limits/algorithm.ts'
import { appliesAt, paramsAt, periodFrom } from '../limits/limiter.ts'
import { numberArray, textArray } from '../sql/calls.ts'
import { NUMBERS } from '../sql/columns.ts'
import type { Form } from '../sql/decided.ts'
import { ENDED, OTHER } from '../sql/levels.ts'
import type { LookSource } from '../sql/look.ts'
import { makeStatement } from '../sql/make.ts'
import { type TakeSource, takeOneStatement } from '../sql/take.ts'
import {
  type Answers,
  type Asked,
  type Decision,
  isNeverDenied,
  limiterFor,
  type Purpose,
  reservedIn,
} from './call.ts'
import { mustSeeAll } from './see-all.ts'
import type { Target } from './store.ts'

// Each function runs one statement: it sends the values and reads the decisions from the rows.

export function askToTake(
  target: Target,
  asked: readonly Asked[],
  statementOf: (source: TakeSource) => Statement,
): Promise<Answers> {
  const [first] = asked
  if (target.several) return target.several.take(target, asked, false)
  if (asked.length === 1 && first) return askOne(target, first, false)
  const form = statementForm(asked)
  return ask(target, asked, {
    name: form.name,
    does: 'take',
    build: (source) => statementOf({ ...source, ...form }),
    valuesOf: manyValues,
  })
}

/** Takes from the row of one key, or adjusts it. With `waits` it waits if another transaction holds the row. */
export function askOne(target: Target, one: Asked, waits: boolean): Promise<Answers> {
  if (target.several) return target.several.take(target, [one], waits)
  const form = statementForm([one])
  return ask(target, [one], {
    name: `${form.name} one ${waits}`,
    does: isNeverDenied(one.request.purpose) ? 'adjust' : 'take',
    build: (source) => takeOneStatement({ ...source, ...form, waits }),
    valuesOf: oneValues,
  })
}

export async function askToMake(target: Target, asked: readonly Asked[], waits: boolean): Promise<Answers> {
  if (target.several) return []
  const form = statementForm(asked)
  return ask(target, asked, {
    name: `make ${form.name} ${waits}`,
    does: 'make',
    build: (source) => makeStatement({ ...source, ...form, waits }),
    valuesOf: madeValues,
    answersAll: waits,
  })
}

export function askToLook(
  target: Target,
  asked: readonly Asked[],
  statementOf: (source: LookSource) => Statement,
): Promise<Answers> {
  if (target.several) return target.several.look(target, asked)
  return ask(target, asked, {
    name: 'look',
    does: 'look',
    build: statementOf,
    valuesOf: manyValues,
    answersAll: true,
  })
}

/** A form and the name that its statements are kept under. */
interface NamedForm extends Form {
  readonly name: string
}

function statementForm(asked: readonly Asked[]): NamedForm {
  const { request } = asked[0] as Asked
  const { purpose } = request
  if (typeof purpose === 'object') return { name: purpose.name, action: purpose, takesLess: false }
  if (purpose !== 'take' && purpose !== 'look') return { name: purpose, action: purpose, takesLess: false }
  const action = reservedIn(request) > 0 ? 'reserve' : 'take'
  return takesLess(asked)
    ? { name: `${action} less`, action, takesLess: true }
    : { name: action, action, takesLess: false }
}

/** Whether one of the calls may take less than its rate. This runs for each check. */
function takesLess(asked: readonly Asked[]): boolean {
  for (const { request } of asked) if (request.atLeast !== null) return true
  return false
}

interface StatementKind {
  readonly name: string
  readonly does: StatementMessage['statement']
  build(source: Omit<TakeSource, keyof Form>): Statement
  valuesOf(asked: readonly Asked[]): Record<string, Value>
  readonly answersAll?: boolean
}

/** It is not `async`, because it runs for each call: a promise more costs time. */
function ask(
  { connection, table, namespace, commit, clockMs, periodMs }: Target,
  asked: readonly Asked[],
  { name, does, build, valuesOf, answersAll = false }: StatementKind,
): Promise<Answers> {
  const { request } = asked[0] as Asked
  const { refusesOther: isRefused } = request
  const limiter = limiterFor(request.limiter, request.purpose)
  const refusesOther = isRefused || namespace.refusesOther === true
  const clock = clockMs ?? namespace.clock?.() ?? null
  const params = limiter.periodAt ? paramsAt(limiter, periodMs ?? clock ?? Date.now()) : limiter.params
  const values = valuesOf(asked)
  values['prefix'] = namespace.prefix
  values['clock'] = clock

  const injectedClock = clock !== null
  const variant = `${name} ${limiter.algorithm.name} ${limiter.startsFull} ${injectedClock} ${commit}${refusesOther ? ' refusing' : ''}`
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${variant} ${guarded}`, () => {
      const rules = refusesOther ? { ...limiter, refusesOther } : limiter
      return build({ table: table.table, rules, injectedClock, commit, guarded })
    })
  const answersOn = async (own: Connection) => {
    const running = () => run(own, [table.size], statementFor, values, params)
    const rows = await (channels.statement?.hasSubscribers
      ? timed({ prefix: namespace.prefix, statement: does, keys: asked.length }, running)
      : running())
    if (does === 'look') await mustSeeAll(own, table, rows)
    if (answersAll && rows.length < asked.length) throw notAsExpected('has no row for a key')
    return answersOf(atMost(rows, asked.length), asked, limiter, params)
  }
  const ledger = does === 'look' ? undefined : namespace.ledger
  // Only a statement for new rows that may not wait sets a `lock_timeout`.
  const isBrief = does === 'make' && !answersAll
  return ledger ? ledger.recordCalls(asked, { connection, isBrief, run: answersOn }) : answersOn(connection)
}

function oneValues([one]: readonly Asked[]): Record<string, Value> {
  const { request, calls } = one as Asked
  return {
    key: request.key,
    rate: divisible(request.rate),
    calls: calls.length,
    atLeast: request.atLeast,
    paidWindowStart: request.paidWindowStart,
    refundableUntil: request.refundableUntil,
    within: request.within,
    reserved: request.reserved,
  }
}

/** The values that calls of the purpose have in addition. */
function moreValues(purpose: Purpose) {
  if (typeof purpose === 'object') return purpose.sends
  return purpose === 'adjust' ? ADJUSTING : NO_MORE
}

const ADJUSTING = ['paidWindowStart', 'refundableUntil', 'reserved'] as const
const NO_MORE = [] as const

function manyValues(asked: readonly Asked[]): Record<string, Value> {
  const keys: string[] = []
  const rates: number[] = []
  const calls: number[] = []
  for (const { request, calls: equal } of asked) {
    keys.push(request.key)
    rates.push(divisible(request.rate))
    calls.push(equal.length)
  }
  const values: Record<string, Value> = {
    key: textArray(keys),
    rate: numberArray(rates),
    calls: numberArray(calls),
  }
  const { purpose } = (asked[0] as Asked).request
  // This runs for each check, and only some need these values.
  if (takesLess(asked)) values['atLeast'] = numberArray(asked.map(({ request }) => request.atLeast))
  for (const name of moreValues(purpose)) {
    values[name] = numberArray(asked.map(({ request }) => request[name]))
  }
  return values
}

/** Values for new rows: no window has paid, and no estimate waits to be settled. */
function madeValues(asked: readonly Asked[]): Record<string, Value> {
  const values = manyValues(asked)
  if (asked[0]?.request.purpose !== 'adjust') return values
  return { ...values, paidWindowStart: null, refundableUntil: null, reserved: 0 }
}

/**
 * A division by a smaller rate would overflow. Smaller rates are far below the tolerance, so they can be
 * raised.
 */
const MIN_RATE = 1e-200

function divisible(rate: number): number {
  return rate > 0 && rate < MIN_RATE ? MIN_RATE : rate
}

function answersOf(
  rows: readonly Row[],
  asked: readonly Asked[],
  limiter: StoredLimiter,
  params: Params,
): Answers {
  const answers: (Decision | undefined)[] = new Array(asked.length)
  const isAnswered: boolean[] = []
  for (const row of rows) {
    if (mustHave(row[NUMBERS]) === null) continue
    const place = row['place'] === undefined ? 0 : Number(row['place']) - 1
    if (isAnswered[place]) throw notAsExpected(TWO_ROWS)
    isAnswered[place] = true
    if (row['decided'] !== false) answers[place] = decisionOf(row, mustHave(asked[place]), limiter, params)
  }
  return answers
}

function decisionOf(row: Row, { calls }: Asked, limiter: StoredLimiter, params: Params): Decision {
  const numbers = exactNumbers(row[NUMBERS])
  // Spread into the object, they would take V8 longer than all the rest of a check.
  const { now, state } = timeAndState(numbers, limiter)
  return {
    now,
    state,
    granted: Math.max(numbers[0] ?? calls.length, 0),
    params,
    ended: endedIn(row[ENDED], limiter),
    isOther: row[OTHER] === true,
    isNew: row['holds'] !== undefined && row['holds'] !== true,
  }
}

/** Takes the first numbers of a decision, in the order of `decisionNumbers`. The rest stays. */
export function timeAndState(
  numbers: number[],
  { algorithm: { columns } }: Pick<StoredLimiter, 'algorithm'>,
): Pick<Decision, 'now' | 'state'> {
  const now = mustHave(numbers.shift())
  const state: Record<string, number> = {}
  for (const column of columns) state[column] = mustHave(numbers.shift())
  // An algorithm reads only its own columns.
  return { now, state: state as Numbers<StateColumn> }
}

/** Reads the period that the first granted call has ended from the statement's text. */
export function endedIn(text: unknown, limiter: StoredLimiter): EndedPeriod | undefined {
  if (typeof text !== 'string') return undefined
  const [start = Number.NaN, used = Number.NaN, reserved] = exactNumbers(text)
  // Other programs may write to the table too. A row without a count, or with a start at infinity, is no
  // period.
  if (!(Number.isFinite(start) && Number.isFinite(used))) return undefined
  return { ...periodFrom(limiter, start), used, ...(reserved === undefined ? {} : { reserved }) }
}

/** Whether the decision was made with the right calendar period. */
export function applies({ request }: Asked, { params, now }: Decision): boolean {
  return !request.limiter.periodAt || appliesAt(params, now)
}
