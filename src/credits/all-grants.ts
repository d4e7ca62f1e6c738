import { ALL_GRANTS } from '../algorithms/grant.ts'
import { freshState } from '../algorithms/limiter.ts'
import type { LimitResult } from '../answers/results.ts'
import { onceFor } from '../base/once-for.ts'
import type { At } from '../check/bounds.ts'
import { Checker } from '../check/checker.ts'
import { answerTo } from '../check/layers.ts'
import { type Row, run } from '../database/run.ts'
import type { Statement, Value } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import type { Answers, Asked } from '../runtime/call.ts'
import { lookAt } from '../runtime/look-at.ts'
import { exactNumber } from '../runtime/number-columns.ts'
import type { Asking } from '../runtime/store.ts'
import { textArray } from '../statements/calls.ts'
import { type GrantsSource, grantsStatement } from '../statements/grants.ts'
import { kept } from '../statements/statements.ts'
import { takeGrantsStatement } from '../statements/take-grants.ts'
import type { Account } from './seen.ts'

// Calls on all grants of a key. They share statements as other calls do.

/** The checker of calls on all grants of a key. */
const checkerOfAll = onceFor(
  ({ rows, terms, alone }: Checker) =>
    new Checker({
      rows: { ...rows, several: { take: takeGrantsStatement, look } },
      terms: { ...terms, limiter: ALL_GRANTS },
      alone,
    }),
)

/** Takes a rate from the grants in their order, or takes nothing. */
export async function takeShared({ checker, key }: Account, rate: number): Promise<LimitResult> {
  const call = { ...lookAt(key, ALL_GRANTS), rate, purpose: 'take' } as const
  return (await answerTo(checkerOfAll(checker), call, undefined)).answer
}

/** A key with fewer rows is read whole. To leave some out costs more there than they do. */
export const MANY = 51

/** The rows of a key, at most {@link MANY}. */
export async function lookAtGrants({ checker, key }: Account, tx: At): Promise<readonly Row[]> {
  const { decision } = await checkerOfAll(checker).decide(lookAt(key, ALL_GRANTS), tx)
  return decision.rows ?? []
}

async function look(asking: Asking, asked: readonly Asked[]): Promise<Answers> {
  const keys = asked.map(({ request }) => request.key)
  const rows = await askForGrants(asking, 'grants', grantsStatement, keys, { ended: 0, most: MANY })
  const found = asked.map((): Row[] => [])
  for (const row of rows) found[Number(row['place']) - 1]?.push(row)
  return found.map((own) => {
    const [now, { params }] = [exactNumber(own[0]?.['now']), ALL_GRANTS]
    return { now, state: freshState(ALL_GRANTS, now, params), granted: 0, params, rows: own }
  })
}

/** Sends a statement on the grants of keys. */
export function askForGrants(
  {
    connection,
    table,
    namespace: { prefix, clock: clockMs },
  }: Pick<Asking, 'connection' | 'table' | 'namespace'>,
  name: string,
  statement: (source: GrantsSource) => Statement,
  keys: readonly string[],
  more: Readonly<Record<string, Value>>,
): Promise<readonly Row[]> {
  const clock = clockMs?.() ?? null
  const injectedClock = clock !== null
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${injectedClock} ${guarded}`, () =>
      statement({ table: table.table, injectedClock, guarded }),
    )
  const values = { prefix, clock, key: textArray(keys), ...more }
  return timed({ prefix, statement: 'look', keys: keys.length }, () =>
    run(connection, [table.size], statementFor, values, {}),
  )
}
