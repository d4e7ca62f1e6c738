import type { Database } from '../kernel/database/database.ts'
import { untilDone } from '../kernel/database/retry.ts'
import { mustHave } from '../kernel/database/rows.ts'
import { type Row, run } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { forgetEverywhere } from '../kernel/engine/denials.ts'
import { otherPlan } from '../kernel/engine/refusal.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import type { EndedPeriod, Limiter, StoredLimiter } from '../kernel/limits/algorithm.ts'
import { hasPeriods, paramsAt, periodFrom } from '../kernel/limits/limiter.ts'
import { checkLimiter, checkOption } from '../kernel/options/validate.ts'
import { insertEmpty, reachesAll } from '../kernel/store/empty-rows.ts'
import { columnIn, exactNumber } from '../shared/number-columns.ts'
import { usedInPeriod } from './close-ended.ts'
import { changePlanStatement } from './sql/change-plan.ts'

/** Options of `changePlan`. */
export interface ChangePlanOptions {
  /** The plan until now: a fixed or calendar window. Default: the limiter's. */
  readonly from?: Limiter | undefined
  /** The plan from now on: a fixed or calendar window. */
  readonly to: Limiter
  /** The transaction that changes the plan in your own tables. Default: one of its own. */
  readonly tx?: Database | undefined
}

/** Ends the period of a key now, and begins one of another plan. Returns what was used until now. */
export async function changePlan(
  checker: Checker,
  key: string,
  { from = checker.terms.limiter, to, tx }: ChangePlanOptions,
): Promise<EndedPeriod | undefined> {
  checkLimiter(from)
  checkLimiter(to)
  checkOption(hasPeriods(from) && hasPeriods(to), 'changePlan needs two fixed or calendar windows.')
  const { table, namespace } = checker.rows
  checkOption(checker.terms.keepEnded, 'changePlan needs a limiter with keepEnded: true.')
  checkOption(
    !namespace.refusesOther,
    "changePlan cannot be combined with onOtherPlan: 'throw'. The new period would be refused as one of another plan.",
  )
  const clock = namespace.clock?.() ?? null
  const name = `change plan ${from.algorithm.name} ${to.algorithm.name} ${clock !== null}`
  const source = {
    ...{ table: table.table, from: from.algorithm, to: to.algorithm },
    ...{ injectedClock: clock !== null, begins: reachesAll([checker.rows]) },
  }
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${guarded}`, () => changePlanStatement({ ...source, guarded }))
  let time = clock ?? Date.now()
  const ended = await withinTimeout([checker], tx, (at) =>
    untilDone('inserted and removed the row of the key', async () => {
      const values = { prefix: namespace.prefix, key, clock }
      const params = paramsAt(to, time)
      const answer = await runOn(checker, at, 'changes', async (connection) => {
        const row = mustHave((await run(connection, [table.size], statementFor, values, params))[0])
        // The next attempt finds the row.
        if (row['own'] === null && row['done'] !== true)
          await insertEmpty([{ ...checker.rows, key }], connection, 'as the session', true)
        return row
      })
      time = exactNumber(answer['now'])
      if (answer['other'] === true) throw otherPlan()
      if (mustHave(answer['done']) !== true) return undefined
      return { period: answer['own'] === true ? periodUntilNow(answer, from, time) : undefined }
    }),
  ).finally(() => forgetEverywhere(checker.rows, key, 'reset'))
  return ended.period
}

/** The period of the row, up to now. Undefined if nothing was used in it. */
function periodUntilNow(row: Row, limiter: StoredLimiter, now: number): EndedPeriod | undefined {
  const counted = usedInPeriod(row, limiter, now)
  if (counted.used === 0) return undefined
  const { start, end } = periodFrom(limiter, exactNumber(columnIn(row, 'windowStart')))
  return { start, end: Math.max(start, Math.min(now, end)), ...counted }
}
