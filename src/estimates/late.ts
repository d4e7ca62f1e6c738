import { allowanceOf } from '../kernel/answers/answer.ts'
import type { Allowed } from '../kernel/answers/results.ts'
import type { Connection } from '../kernel/database/connection.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { At } from '../kernel/engine/bounds.ts'
import { runOn } from '../kernel/engine/work.ts'
import type { Period } from '../kernel/limits/algorithm.ts'
import { hasPeriods } from '../kernel/limits/limiter.ts'
import type { Call, Decision } from '../kernel/store/call.ts'
import { stateIn } from '../shared/number-columns.ts'
import { nameIn } from './names.ts'
import { isTooLate, type Settled, settlementOf } from './settlement.ts'
import { correctStatement } from './sql/correct.ts'

/** The period that paid, if it has ended within the grace time. */
export function endedPeriod(settled: Settled, look: Decision | undefined): Period | undefined {
  const { each, paid, windowEnd } = settled
  const { windowStart: start } = paid
  if (start === null || !isTooLate(settled, look) || look.state.windowStart < start) return undefined
  const { now, state } = look
  // A change of the plan may have ended the period before its limit would have.
  const end = Math.min(windowEnd ?? state.windowStart, state.windowStart)
  return now < end + each.checker.terms.graceMs ? { start, end } : undefined
}

/**
 * Settles an estimate whose period has ended, within the grace time: in the key's row if it still counts that
 * period, or as a correction in the answer if the period was handed out. Undefined if the period is running, or
 * if the time is over.
 *
 * If the period is handed out between the look and the statement, the statement finds no row, so the change is
 * counted once.
 */
export async function settleLate(settled: Settled, tx: At): Promise<Allowed | undefined> {
  const { checker } = settled.each
  const settlement = settlementOf(settled)
  const { key, limiter, rate, reserved } = settlement
  if (!hasPeriods(limiter)) return undefined
  const look: Call = { ...settlement, rate: 0, purpose: 'look', reserved: 0, paidWindowStart: null }
  const outcome = await checker.decide(look, tx)
  const { decision } = outcome
  const period = endedPeriod(settled, decision)
  if (!period) return undefined
  const { start } = period
  const { now, state, params } = decision
  const { table, namespace } = checker.rows
  const { reporting } = checker.terms
  const name = `correct ${limiter.algorithm.name}`
  const statement = kept(table.statements, name, () => correctStatement(table.table, limiter.algorithm))
  const values = { prefix: namespace.prefix, key, start, rate, reserved }
  const { used, consume, next } = limiter.algorithm.numbers
  const correct = async (connection: Connection) => {
    const [row] = await runOnce(connection, statement, values, limiter.params)
    if (!row) return { isCorrected: false, returned: -rate, answer: allowanceOf(outcome, reporting) }
    const before = stateIn(row, limiter)
    // What is left of the period may be carried over to the running one.
    const after = next?.(consume(before, start, rate, params, reserved), params) ?? state
    const answer = allowanceOf({ ...outcome, decision: { ...decision, state: after } }, reporting)
    return { isCorrected: true, returned: Math.min(-rate, used(before, start, limiter.params)), answer }
  }
  const { ledger } = namespace
  const { isCorrected, returned, answer } = await runOn(checker, tx, 'changes', async (connection) => {
    if (!ledger) return correct(connection)
    const { row: named } = settled
    const name = named === undefined ? {} : { id: nameIn(named).id }
    const entry = { prefix: namespace.prefix, key, kind: 'settle', at: now, start, ...name } as const
    return ledger.record({
      ...{ connection, isBrief: false, run: correct },
      recordedBy: (made) => {
        const { remaining } = made.answer
        const units = -made.returned
        return rate === 0 ? [] : [{ write: ledger.write, entry: { ...entry, remaining, units } }]
      },
    })
  })
  return {
    ...answer,
    ...(rate < 0 ? { returned } : {}),
    ...(isCorrected || rate === 0 ? {} : { correction: { ...period, used: rate } }),
  }
}
