import { hasPeriods, periodFrom } from '../algorithms/limiter.ts'
import { allowanceOf } from '../check/answer.ts'
import type { Checker } from '../check/checker.ts'
import type { Allowed } from '../check/results.ts'
import { runOn } from '../check/upkeep.ts'
import type { CallOptions } from '../config.ts'
import type { Connection } from '../database/connection.ts'
import { runOnce } from '../database/run.ts'
import { stateIn } from '../runtime/ask.ts'
import type { Call } from '../runtime/call.ts'
import { correctStatement } from '../statements/correct.ts'
import { kept } from '../statements/statements.ts'

/**
 * Settles an estimate whose period has ended, within the grace time: in the key's row if it still counts that
 * period, or as a correction in the answer if the period was handed out. Undefined if the period is running, or
 * if the time is over.
 *
 * If the period is handed out between the look and the statement, the statement finds no row, so the change is
 * counted once.
 */
export async function settleLate(
  checker: Checker,
  settlement: Call,
  graceMs: number,
  tx: CallOptions['tx'],
): Promise<Allowed | undefined> {
  const { key, limiter, rate, paidWindowStart: start } = settlement
  if (start === null || !hasPeriods(limiter)) return undefined
  const look: Call = { ...settlement, rate: 0, purpose: 'look', reserved: 0, paidWindowStart: null }
  const outcome = await checker.decide(look, tx)
  const period = periodFrom(limiter, start)
  const { now, state } = outcome.decision
  if (state.windowStart <= start || now >= period.end + graceMs) return undefined
  const { table, namespace, reporting } = checker.config
  const name = `correct ${limiter.algorithm.name}`
  const statement = kept(table.statements, name, () => correctStatement(table.table, limiter.algorithm))
  const values = { prefix: namespace.prefix, key, start, rate, reserved: settlement.reserved }
  const stage = { mayCharge: true, mayWait: true, isContended: true }
  const correct = async ({ db }: Connection) => {
    const [row] = await runOnce(db, statement, values, limiter.params)
    const { used } = limiter.algorithm.numbers
    const before = row ? used(stateIn(row, limiter), start, limiter.params) : Number.POSITIVE_INFINITY
    return { row, returned: Math.min(-rate, before) }
  }
  const { ledger } = namespace
  const { row, returned } = await runOn(checker, tx, stage, async (connection) => {
    if (!ledger) return correct(connection)
    const { record } = await import('../check/record.ts')
    const { remaining } = allowanceOf(outcome, reporting)
    const entry = { prefix: namespace.prefix, key, kind: 'settle', remaining, at: now, start } as const
    return record({
      ...{ connection, isBrief: false, run: correct },
      recordedBy: (corrected) =>
        rate === 0 ? [] : [{ onEntries: ledger.onEntries, entry: { ...entry, units: -corrected.returned } }],
    })
  })
  return {
    ...allowanceOf(outcome, reporting),
    ...(rate < 0 ? { returned } : {}),
    ...(row || rate === 0 ? {} : { correction: { ...period, used: rate } }),
  }
}
