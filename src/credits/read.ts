import type { Usage } from '../kernel/answers/results.ts'
import { sorted } from '../kernel/base/arrays.ts'
import { exactNumbers, mustHave } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import type { Statement, Value } from '../kernel/database/statement.ts'
import type { At } from '../kernel/engine/bounds.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { behindGate } from '../kernel/engine/look-all.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { checkKey } from '../kernel/options/validate.ts'
import { compareText } from '../kernel/sql/calls.ts'
import { NUMBERS } from '../kernel/sql/columns.ts'
import { timeAndState } from '../kernel/store/answers.ts'
import { lookAt } from '../kernel/store/call.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { askForGrants, lookAtGrants, MANY } from './all-grants.ts'
import { DEBT } from './keys.ts'
import { type Account, type GrantRows, type Seen, type SeenGrant, seenWhole } from './seen.ts'
import {
  type GrantsSource,
  grantSumsStatement,
  grantsStatement,
  neededGrantsStatement,
} from './sql/grants.ts'
import { usageBy } from './usage.ts'

/** @throws RatelimitError `INVALID_KEY` */
export function accountOf(checker: Checker, limiter: StoredLimiter, key: string): Account {
  const { namespace } = checker.rows
  checkKey(key, namespace.prefix)
  checkKey(key + DEBT, namespace.prefix)
  namespace.onUse?.()
  return { checker, limiter, key }
}

/** What a call needs to know of the grants of a key. */
export interface Needed {
  /** Those that pay it come first. Below 0, those that get it back. */
  readonly rate: number
  /** How much of the rate must be there for the call to be allowed. Default: all. */
  readonly least?: number
  /** At least this many of those that pay. */
  readonly rows?: number
}

/** Reads the debt of a key, the grants that a call may need, and what there is in all. */
export async function read(
  account: Account,
  tx: At,
  { rate, least = rate, rows: fewest = 0 }: Needed,
): Promise<Seen> {
  const { checker, key } = account
  const rows = await lookAtGrants(account, tx)
  if (rows.length < MANY) return seenWhole(rowsIn(account, rows), least)
  const needed = { back: Number(rate < 0), rate: Math.abs(rate), least, rows: fewest }
  const own = await readBy(checker, [key], tx, 'needed grants', neededGrantsStatement, needed)
  const [granted = 0, used = 0, lastsUntil = 0] = exactNumbers(own[0]?.[NUMBERS]).slice(-3)
  return { ...rowsIn(account, own), granted, used, lastsUntil }
}

/** Reads all grants of a key, also those that are over. */
export async function readAll(account: Account, tx: At): Promise<GrantRows> {
  const { checker, key } = account
  const most = 2 ** 31 - 1
  return rowsIn(account, await readBy(checker, [key], tx, 'grants', grantsStatement, { ended: 1, most }))
}

/** What keys have, and whether they are blocked. */
export function readUsage(checker: Checker, keys: readonly string[], tx: At): Promise<Usage[]> {
  return withinTimeout([checker], tx, async (at) =>
    behindGate(checker, keys, await readSums(checker, keys, at), at),
  )
}

/** Reads what keys have. How many grants that is makes no difference to the answer of the database. */
export async function readSums(checker: Checker, keys: readonly string[], tx: At): Promise<Usage[]> {
  if (keys.length === 0) return []
  const rows = await readBy(checker, keys, tx, 'grant sums', grantSumsStatement)
  const sums = new Map(rows.map((row) => [Number(row['place']), row]))
  return keys.map((_, place) => {
    const row = mustHave(sums.get(place + 1))
    const of = (column: string) => exactNumber(row[column])
    return usageBy({ now: of('now'), granted: of('granted'), used: of('used') })
  })
}

function readBy(
  checker: Checker,
  keys: readonly string[],
  tx: At,
  name: string,
  statement: (source: GrantsSource) => Statement,
  more: Readonly<Record<string, Value>> = {},
): Promise<readonly Row[]> {
  return runOn(checker, tx, 'looks', (connection) =>
    askForGrants({ ...checker.rows, connection }, name, statement, keys, more),
  )
}

function rowsIn({ limiter, key }: Account, rows: readonly Row[]): GrantRows {
  let [now, debt] = [0, 0]
  const grants: SeenGrant[] = []
  for (const row of rows) {
    const rest = mustHave(row['rest'])
    const read = timeAndState(exactNumbers(row[NUMBERS]), limiter.algorithm)
    now = read.now
    if (rest === DEBT) debt = read.state.count
    else if (typeof rest === 'string') {
      const look = { now, params: limiter.params, state: read.state, granted: 0 }
      grants.push({ request: lookAt(key + rest, limiter), look })
    }
  }
  return { now, debt, grants: sorted(grants, inOrder) }
}

/** By priority, then by end, then by age. */
function inOrder(one: SeenGrant, other: SeenGrant): number {
  const [a, b] = [one.look.state, other.look.state]
  return (
    a.tokens - b.tokens ||
    a.windowStart - b.windowStart ||
    a.lastRefill - b.lastRefill ||
    compareText(one.request.key, other.request.key)
  )
}
