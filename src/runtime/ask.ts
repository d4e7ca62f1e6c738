import type { EndedPeriod, Numbers, Params, StateColumn, StoredLimiter } from '../algorithms/algorithm.ts'
import { appliesAt, paramsAt, periodFrom } from '../algorithms/limiter.ts'
import type { Connection } from '../database/connection.ts'
import { atMost, mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import { type Row, run } from '../database/run.ts'
import type { Statement, Value } from '../database/statement.ts'
import { channels, type StatementMessage, timed } from '../diagnostics.ts'
import { numberArray, textArray } from '../statements/calls.ts'
import { SQL_NAMES } from '../statements/columns.ts'
import type { Intent } from '../statements/decided.ts'
import { ENDED, OTHER } from '../statements/levels.ts'
import { lookStatement } from '../statements/look.ts'
import { makeStatement } from '../statements/make.ts'
import type { Commit } from '../statements/setting.ts'
import { kept } from '../statements/statements.ts'
import { type TakeManySource, takeManyStatement, takeOneStatement } from '../statements/take.ts'
import { type Decision, isSure, type Namespace, type Request, reservedIn, type Table } from './call.ts'

// One statement each: what is sent, and what its rows mean.

/** Where and how a statement is run. */
export interface Asking {
  readonly connection: Connection
  readonly table: Table
  readonly namespace: Namespace
  readonly commit: Commit
  /** In place of the clock of the namespace, in Unix milliseconds. */
  readonly clockMs?: number
  /** A time in the calendar period to ask for. Default: the injected clock's time, or this machine's. */
  readonly periodMs?: number
}

/** A request, and how many calls make it. */
export interface Asked {
  readonly request: Request
  readonly calls: { readonly length: number }
}

/** The decision on each request, or undefined if the statement found no row to decide on. */
export type Answers = readonly (Decision | undefined)[]

/** Takes from the rows of many keys, which have one limiter. */
export function askToTake(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  const [first] = asked
  if (asked.length === 1 && first) return askOne(asking, first, false)
  const form = formOf(asked)
  return ask(asking, asked, {
    name: form.name,
    does: 'take',
    build: (source) => takeManyStatement({ ...source, ...form }),
    valuesOf: manyValues,
  })
}

/** Takes from, or adjusts, the row of one key; `waits` for it when another transaction holds it. */
export function askOne(asking: Asking, one: Asked, waits: boolean): Promise<Answers> {
  const form = formOf([one])
  return ask(asking, [one], {
    name: `${form.name} one ${waits}`,
    does: isSure(one.request.purpose) ? 'adjust' : 'take',
    build: (source) => takeOneStatement({ ...source, ...form, waits }),
    valuesOf: oneValues,
  })
}

/** Makes the rows of many keys, which have one limiter, where they do not exist. */
export function askToMake(asking: Asking, asked: readonly Asked[], waits: boolean): Promise<Answers> {
  const form = formOf(asked)
  return ask(asking, asked, {
    name: `make ${form.name} ${waits}`,
    does: 'make',
    build: (source) => makeStatement({ ...source, ...form, waits }),
    valuesOf: madeValues,
    answersAll: waits,
  })
}

/** Looks at the rows of many keys, which have one limiter. */
export function askToLook(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  return ask(asking, asked, {
    name: 'look',
    does: 'look',
    build: lookStatement,
    valuesOf: manyValues,
    answersAll: true,
  })
}

/** The form of the statement that does what the calls ask for. */
interface Form {
  readonly name: string
  readonly intent: Intent
  readonly takesLess: boolean
}

const FORMS = {
  take: { name: 'take', intent: 'take', takesLess: false },
  reserve: { name: 'reserve', intent: 'reserve', takesLess: false },
  takeLess: { name: 'take less', intent: 'take', takesLess: true },
  reserveLess: { name: 'reserve less', intent: 'reserve', takesLess: true },
  grant: { name: 'grant', intent: 'grant', takesLess: false },
  adjust: { name: 'adjust', intent: 'adjust', takesLess: false },
} satisfies Record<string, Form>

function formOf([first]: readonly Asked[]): Form {
  const { request } = first as Asked
  if (request.purpose === 'adjust') return FORMS.adjust
  if (request.purpose === 'grant') return FORMS.grant
  if (reservedIn(request) > 0) return request.atLeast === null ? FORMS.reserve : FORMS.reserveLess
  return request.atLeast === null ? FORMS.take : FORMS.takeLess
}

/** A kind of statement. */
interface Kind {
  readonly name: string
  readonly does: StatementMessage['statement']
  build(source: Omit<TakeManySource, 'intent'>): Statement
  valuesOf(asked: readonly Asked[]): Record<string, Value>
  /** Whether it answers for every key. */
  readonly answersAll?: boolean
}

async function ask(
  { connection, table, namespace, commit, clockMs, periodMs }: Asking,
  asked: readonly Asked[],
  { name, does, build, valuesOf, answersAll = false }: Kind,
): Promise<Answers> {
  const { limiter, refusesOther: isRefused } = (asked[0] as Asked).request
  const refusesOther = isRefused || namespace.refusesOther === true
  const clock = clockMs ?? namespace.clock?.() ?? null
  const params = limiter.periodAt ? paramsAt(limiter, periodMs ?? clock ?? Date.now()) : limiter.params
  const values = valuesOf(asked)
  values['prefix'] = namespace.prefix
  values['clock'] = clock

  const injectedClock = clock !== null
  const variant = `${name} ${limiter.algorithm.name} ${limiter.startsFull} ${injectedClock} ${commit}${refusesOther ? ' refusing' : ''}`
  const statementFor = (guarded: boolean) => {
    const full = `${variant} ${guarded}`
    const known = table.statements.get(full)
    const rules = refusesOther ? { ...limiter, refusesOther } : limiter
    const source = () => ({ table: table.table, rules, injectedClock, commit, guarded })
    return known ?? kept(table.statements, full, () => build(source()))
  }
  const running = () => run(connection, [table.size], statementFor, values, params)
  const rows = await (channels.statement?.hasSubscribers
    ? timed({ prefix: namespace.prefix, statement: does, keys: asked.length }, running)
    : running())
  if (answersAll && rows.length < asked.length) throw notAsExpected('has no row for a key')
  return answersOf(atMost(rows, asked.length), asked, params)
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
    reserved: request.reserved,
  }
}

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
  const { purpose, atLeast } = (asked[0] as Asked).request
  // Each check comes here, and only some of them need these.
  if (atLeast !== null) values['atLeast'] = numberArray(asked.map(({ request }) => request.atLeast))
  if (purpose !== 'adjust') return values
  for (const name of ['paidWindowStart', 'refundableUntil', 'reserved'] as const) {
    values[name] = numberArray(asked.map(({ request }) => request[name]))
  }
  return values
}

/** For rows that are made: no window has paid for them, and nothing in them waits to be settled. */
function madeValues(asked: readonly Asked[]): Record<string, Value> {
  return { ...manyValues(asked), paidWindowStart: null, refundableUntil: null, reserved: 0 }
}

/** Dividing by a smaller rate would overflow. All smaller rates are far below the tolerance. */
const MIN_RATE = 1e-200

function divisible(rate: number): number {
  return rate > 0 && rate < MIN_RATE ? MIN_RATE : rate
}

function answersOf(rows: readonly Row[], asked: readonly Asked[], params: Params): Answers {
  const answers: (Decision | undefined)[] = new Array(asked.length)
  const isAnswered: boolean[] = []
  for (const row of rows) {
    if (mustHave(row['now']) === null) continue
    const place = row['place'] === undefined ? 0 : Number(row['place']) - 1
    if (isAnswered[place]) throw notAsExpected(TWO_ROWS)
    isAnswered[place] = true
    if (row['decided'] !== false) answers[place] = decisionOf(row, mustHave(asked[place]), params)
  }
  return answers
}

/** Drivers differ in how they hand on numbers. */
function decisionOf(row: Row, { request, calls }: Asked, params: Params): Decision {
  const granted = row['granted']
  return {
    now: Number(row['now']),
    granted: granted === undefined ? calls.length : Math.max(Number(granted), 0),
    state: stateIn(row, request.limiter),
    params,
    ended: endedIn(row[ENDED], request.limiter),
    isOther: row[OTHER] === true,
    isNew: row['holds'] !== undefined && row['holds'] !== true,
  }
}

/** The period that the first of the granted calls has ended, as the statement writes it. */
export function endedIn(text: unknown, limiter: StoredLimiter): EndedPeriod | undefined {
  if (typeof text !== 'string') return undefined
  const [start = Number.NaN, used = Number.NaN, reserved] = text.split(' ').map(Number)
  // Others may write to the table too: a count, or a start at infinity, is no period.
  if (!(Number.isFinite(start) && Number.isFinite(used))) return undefined
  return { ...periodFrom(limiter, start), used, ...(reserved === undefined ? {} : { reserved }) }
}

/** The state that a row of an answer holds. */
export function stateIn(row: Row, limiter: StoredLimiter): Numbers<StateColumn> {
  return stateBy((column) => columnIn(row, column), limiter)
}

/** The state whose columns `of` finds. */
export function stateBy(
  of: (column: StateColumn) => unknown,
  { algorithm }: StoredLimiter,
): Numbers<StateColumn> {
  const state: Record<string, number> = {}
  for (const column of algorithm.columns) state[column] = Number(mustHave(of(column)))
  // An algorithm reads its own columns only.
  return state as Numbers<StateColumn>
}

/**
 * A column of the state in a row of an answer. postgres.js' `transform: postgres.camel` and Kysely's
 * CamelCasePlugin rename the columns of every answer. All others have names of one word, which those leave.
 */
export function columnIn(row: Row, column: StateColumn): unknown {
  const name = SQL_NAMES[column]
  return mustHave(name in row ? row[name] : row[column])
}

/** Whether the decision was made with the parameters of its time. */
export function applies({ request }: Asked, { params, now }: Decision): boolean {
  return !request.limiter.periodAt || appliesAt(params, now)
}
