import type { Connection } from '../database/connection.ts'
import { atMost, notAsExpected } from '../database/rows.ts'
import { run } from '../database/run.ts'
import { kept, type Statement, type Value } from '../database/statement.ts'
import { channels, type StatementMessage, timed } from '../diagnostics.ts'
import type { StoredLimiter } from '../limits/algorithm.ts'
import type { Form } from '../sql/decided.ts'
import type { LookSource } from '../sql/look.ts'
import { makeStatement } from '../sql/make.ts'
import { type TakeSource, takeOneStatement } from '../sql/take.ts'
import { answersOf } from './answers.ts'
import { type Answers, type Asked, isNeverDenied, limiterFor, reservedIn } from './call.ts'
import { mustSeeAll } from './see-all.ts'
import type { Target } from './store.ts'
import { madeValues, manyValues, numbersOf, oneValues, takesLess } from './values.ts'

// Each function runs one statement.

/** Takes from rows, or adjusts them. For many keys it skips those that others hold, by the statement. */
export function askToTake(
  target: Target,
  asked: readonly Asked[],
  waits: boolean,
  statementOf: (source: TakeSource) => Statement,
): Promise<Answers> {
  const [first] = asked
  if (asked.length === 1 && first) return askOne(target, first, waits)
  const form = statementForm(asked)
  return ask(target, asked, {
    name: form.name,
    does: 'take',
    build: (source) => statementOf({ ...source, ...form }),
    valuesOf: manyValues,
  })
}

function askOne(target: Target, one: Asked, waits: boolean): Promise<Answers> {
  const form = statementForm([one])
  return ask(target, [one], {
    name: `${form.name} one ${waits}`,
    does: isNeverDenied(one.request.purpose) ? 'adjust' : 'take',
    build: (source) => takeOneStatement({ ...source, ...form, waits }),
    valuesOf: oneValues,
  })
}

export async function askToMake(target: Target, asked: readonly Asked[], waits: boolean): Promise<Answers> {
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
  return ask(target, asked, {
    name: 'look',
    does: 'look',
    build: statementOf,
    valuesOf: manyValues,
    answersAll: true,
  })
}

/** What the calls ask for, and the name that its statements are kept under. */
function statementForm(asked: readonly Asked[]): Form & { readonly name: string } {
  const { request } = asked[0] as Asked
  const { purpose } = request
  if (purpose !== 'take' && purpose !== 'look') {
    const name = typeof purpose === 'object' ? purpose.name : purpose
    return { name, action: purpose, takesLess: false }
  }
  const action = reservedIn(request) > 0 ? 'reserve' : 'take'
  const less = takesLess(asked)
  return { name: less ? `${action} less` : action, action, takesLess: less }
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
  { connection, table, namespace, commit, periodMs }: Target,
  asked: readonly Asked[],
  { name, does, build, valuesOf, answersAll = false }: StatementKind,
): Promise<Answers> {
  const { limiter, purpose, refusesOther: isRefused } = (asked[0] as Asked).request
  const { algorithm, startsFull } = limiterFor(limiter, purpose)
  const refusesOther = isRefused || namespace.refusesOther === true
  const clock = namespace.clock?.() ?? null
  const numbers = numbersOf(asked, limiterOfCall, periodMs ?? clock ?? Date.now())
  const differing = numbers.differing.map(([name]) => name)
  const values = valuesOf(asked)
  for (const [name, value] of numbers.differing) values[name] = value
  values['prefix'] = namespace.prefix
  values['clock'] = clock

  const injectedClock = clock !== null
  const variant = `${name} ${algorithm.name} ${startsFull} ${injectedClock} ${commit} ${refusesOther} ${differing.join()}`
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${variant} ${guarded}`, () => {
      const rules = { algorithm, startsFull, refusesOther }
      return build({ table: table.table, rules, injectedClock, commit, guarded, differing })
    })
  const answersOn = async (own: Connection) => {
    const running = () => run(own, [table.size], statementFor, values, numbers.params)
    const rows = await (channels.statement?.hasSubscribers
      ? timed({ prefix: namespace.prefix, statement: does, keys: asked.length }, running)
      : running())
    if (does === 'look') await mustSeeAll(own, table, rows)
    if (answersAll && rows.length < asked.length) throw notAsExpected('has no row for a key')
    return answersOf(atMost(rows, asked.length), asked, algorithm, numbers)
  }
  const ledger = does === 'look' ? undefined : namespace.ledger
  // Only a statement for new rows that may not wait sets a `lock_timeout`.
  const isBrief = does === 'make' && !answersAll
  return ledger ? ledger.recordCalls(asked, { connection, isBrief, run: answersOn }) : answersOn(connection)
}

function limiterOfCall({ request }: Asked): StoredLimiter {
  return request.limiter
}
