import { limiterOf } from '../algorithms/grant.ts'
import type { At } from '../check/bounds.ts'
import { fromHex, toHex } from '../check/hex-id.ts'
import { runOn } from '../check/run-on.ts'
import { uncharged } from '../database/database-error.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { type Row, run } from '../database/run.ts'
import type { Statement, Value } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import { checkKey } from '../options/validate.ts'
import { lookAt } from '../runtime/look-at.ts'
import { columnIn, exactNumber, stateIn } from '../runtime/number-columns.ts'
import { compareText } from '../statements/calls.ts'
import { DEBT, GRANT, type GrantsSource, grantSumsStatement, grantsStatement } from '../statements/grants.ts'
import { kept } from '../statements/statements.ts'
import type { Account, Grant, Seen, Sums } from './seen.ts'

/** @throws RatelimitError `INVALID_KEY` */
export function accountOf({ checker, credits, key }: Account): Account {
  const { namespace, onUse } = checker.config
  checkKey(key, namespace.prefix)
  checkKey(key + DEBT, namespace.prefix)
  onUse?.()
  return { checker, credits, key }
}

/** The key of a grant's row. */
export function keyOfGrant(key: string, id: string): string {
  return `${key}${GRANT}${toHex(id)}`
}

/** Reads the grants and the debt of a key. Without `ended` it leaves out grants that are over. */
export async function read(account: Account, tx: At, ended = false): Promise<Seen> {
  const rows = await readBy(account, tx, 'grants', grantsStatement, { ended: Number(ended) })
  return seenIn(account, rows)
}

/** Reads what a key has. How many grants that is makes no difference to the answer of the database. */
export async function readSums(account: Account, tx: At): Promise<Sums> {
  const row = mustHave(onlyRow(await readBy(account, tx, 'grant sums', grantSumsStatement)))
  return {
    now: exactNumber(row['now']),
    granted: exactNumber(row['granted']),
    used: exactNumber(row['used']),
  }
}

function readBy(
  { checker, key }: Account,
  tx: At,
  name: string,
  statement: (source: GrantsSource) => Statement,
  more: Readonly<Record<string, Value>> = {},
): Promise<readonly Row[]> {
  const { table, namespace } = checker.config
  const { prefix } = namespace
  const clock = namespace.clock?.() ?? null
  const injectedClock = clock !== null
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${injectedClock} ${guarded}`, () =>
      statement({ table: table.table, injectedClock, guarded }),
    )
  const stage = { mayCharge: false, mayWait: false, isContended: false }
  const reading = runOn(checker, tx, stage, (connection) =>
    timed({ prefix, statement: 'look', keys: 1 }, () =>
      run(connection, [table.size], statementFor, { prefix, key, clock, ...more }, {}),
    ),
  )
  return uncharged(reading)
}

function seenIn({ credits, key }: Account, rows: readonly Row[]): Seen {
  const limiter = limiterOf(credits)
  const now = exactNumber(rows[0]?.['now'])
  let debt = 0
  const grants: Grant[] = []
  for (const row of rows) {
    const rest = mustHave(row['rest'])
    if (typeof rest !== 'string') continue
    const id = fromHex(rest.slice(GRANT.length))
    if (rest === DEBT) debt = exactNumber(columnIn(row, 'count'))
    else if (id !== undefined) {
      const look = { now, params: limiter.params, state: stateIn(row, limiter), granted: 0 }
      grants.push({ id, request: lookAt(key + rest, limiter), look })
    }
  }
  return { now, debt, grants: grants.toSorted(inOrder) }
}

/** By priority, then by end, then by age. */
function inOrder(one: Grant, other: Grant): number {
  const [a, b] = [one.look.state, other.look.state]
  return (
    a.tokens - b.tokens ||
    a.windowStart - b.windowStart ||
    a.lastRefill - b.lastRefill ||
    compareText(one.id, other.id)
  )
}
