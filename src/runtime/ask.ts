import {
  appliesAt,
  type Limiter,
  type Numbers,
  type Params,
  paramsAt,
  type StateColumn,
} from '../algorithms/algorithm.ts'
import { type Row, run } from '../database/run.ts'
import { type Statement, type Value, valuesOf } from '../database/statement.ts'
import { RatelimitError } from '../errors.ts'
import { numberArray, textArray } from '../statements/calls.ts'
import { SQL_NAMES } from '../statements/columns.ts'
import type { Commit } from '../statements/setting.ts'
import { look, make, takeMany, takeOne } from '../statements/statements.ts'
import type { Decision, Namespace, Request, Target } from './call.ts'

// One statement each: what is sent, and what its rows mean.

/** Where and how a statement is run. */
export interface Asking {
  readonly target: Target
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
  const only = asked.length === 1 ? first : undefined
  if (only) return askOne(asking, only, false)
  return ask(asking, asked, (source) => takeMany(source), manyValues)
}

/** Takes from, or adjusts, the row of one key; `waits` for it when another transaction holds it. */
export function askOne(asking: Asking, one: Asked, waits: boolean): Promise<Answers> {
  const intent = one.request.purpose === 'adjust' ? 'adjust' : 'take'
  return ask(asking, [one], (source) => takeOne({ ...source, intent, waits }), oneValues)
}

/** Makes the rows of many keys, which have one limiter, where they do not exist. */
export function askToMake(asking: Asking, asked: readonly Asked[], waits: boolean): Promise<Answers> {
  const intent = asked[0]?.request.purpose === 'adjust' ? 'adjust' : 'take'
  return ask(asking, asked, (source) => make({ ...source, intent, waits }), manyValues, waits)
}

/** Looks at the rows of many keys, which have one limiter. */
export function askToLook(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  return ask(asking, asked, look, manyValues, true)
}

type Source = Parameters<typeof takeMany>[0]

/** If the size of a table changes more often during one call, something else is wrong. */
const MAX_SIZE_CHANGES = 10

async function ask(
  { target, namespace, commit, clockMs, periodMs }: Asking,
  asked: readonly Asked[],
  statementFor: (source: Source) => Statement,
  valuesFor: (asked: readonly Asked[]) => Record<string, Value>,
  answersAll = false,
): Promise<Answers> {
  const { limiter } = (asked[0] as Asked).request
  const clock = clockMs ?? namespace.clock()
  const { prepared, table } = target
  const tableSize = prepared.sizeOf(table)
  for (let tries = 0; tries < MAX_SIZE_CHANGES; tries++) {
    const { believed, plan } = tableSize
    const guarded = tableSize.isOld && plan !== undefined && prepared.sessionFor(target.db) !== undefined
    const params = paramsAt(limiter, periodMs ?? clock ?? Date.now())
    const source = { table, algorithm: limiter.algorithm, injectedClock: clock !== null, commit, guarded }
    const values = valuesFor(asked)
    values['prefix'] = namespace.prefix
    values['clock'] = clock
    values['size'] = believed
    const statement = statementFor(source)
    const sentAt = performance.now()
    const rows = await run(target, statement, valuesOf(statement, values, params), plan)
    const size = guarded ? rows[0]?.['size'] : undefined
    if (size !== undefined) {
      tableSize.saw(Number(size), sentAt)
      // The guard has compared the size with what was sent. If they differ, nothing was read or written.
      if (Number(size) !== believed) continue
    }
    if (answersAll && rows.length < asked.length) {
      throw new RatelimitError('DATABASE', "The database's answer has no row for a key.")
    }
    return answersOf(rows, asked, params)
  }
  throw new RatelimitError('DATABASE', 'The table went on growing and shrinking while it was asked.')
}

function oneValues([one]: readonly Asked[]): Record<string, Value> {
  const { request, calls } = one as Asked
  return {
    key: request.key,
    rate: divisible(request.rate),
    calls: calls.length,
    paidWindowStart: request.paidWindowStart,
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
  return {
    key: textArray(keys),
    rate: numberArray(rates),
    calls: numberArray(calls),
    paidWindowStart: asked[0]?.request.paidWindowStart ?? null,
  }
}

/** Dividing by a smaller rate would overflow. All smaller rates are far below the tolerance. */
const MIN_RATE = 1e-200

function divisible(rate: number): number {
  return rate > 0 && rate < MIN_RATE ? MIN_RATE : rate
}

function answersOf(rows: readonly Row[], asked: readonly Asked[], params: Params): Answers {
  const answers: (Decision | undefined)[] = new Array(asked.length)
  for (const row of rows) {
    if (row['now'] === null || row['decided'] === false) continue
    const place = row['place'] === undefined ? 0 : Number(row['place']) - 1
    const one = asked[place]
    if (one) answers[place] = decisionOf(row, one, params)
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
  }
}

/** The state that a row of an answer holds. */
export function stateIn(row: Row, { algorithm }: Limiter): Numbers<StateColumn> {
  const state: Record<string, number> = {}
  for (const column of algorithm.columns) state[column] = Number(row[SQL_NAMES[column]])
  // An algorithm reads its own columns only.
  return state as Numbers<StateColumn>
}

/** Whether the decision was made with the parameters of its time. */
export function applies({ params, now }: Decision): boolean {
  return appliesAt(params, now)
}
