import type { Connection } from '../kernel/database/connection.ts'
import type { Database } from '../kernel/database/database.ts'
import { exactNumbers, mustHave, onlyRow } from '../kernel/database/rows.ts'
import type { Row } from '../kernel/database/run.ts'
import type { Statement } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { watched } from '../kernel/engine/layers.ts'
import { withinTimeout } from '../kernel/engine/within-timeout.ts'
import { runOn } from '../kernel/engine/work.ts'
import { compareText } from '../kernel/sql/calls.ts'
import type { Commit } from '../kernel/sql/guard.ts'
import { fromHex } from '../shared/hex-id.ts'
import { commitOn, type OwnSource, ownStatement } from '../shared/own-rows.ts'
import { inTransactionIf } from '../shared/transaction-if.ts'
import type { Added, Counted, NotAdded } from './answers.ts'
import { answeredTime } from './options.ts'
import { addStatement, lockStatement, renewStatement } from './sql/add.ts'
import { listStatement, removeStatement } from './sql/list.ts'

/** The rows of a key, and of one of its members. */
export interface Where {
  readonly checker: Checker
  /** The limited key, as it is stored. */
  readonly limited: string
  /** The keys of the rows: of the head, and of the member. */
  readonly head: string
  readonly key: string
  readonly windowMs: number
}

/** Adds a member, or says when it could be added. */
export async function add(where: Where, limit: number, tx: Database | undefined): Promise<Added | NotAdded> {
  const { checker, limited } = where
  // If the clock fails, it must fail before any SQL.
  const clock = checker.rows.namespace.clock?.() ?? null
  const adding = watched(
    [{ checker, call: { key: limited, rate: 1 } }],
    tx,
    () =>
      withinTimeout([checker], tx, (at) =>
        runOn(checker, at, 'changes', (connection) => addOn(where, limit, connection)),
      ),
    (answer) => [{ answer, rate: answer.success && !answer.isNew ? 0 : 1 }],
  )
  if (!checker.joined(tx)) checker.alone.sweeps.after(adding, clock)
  return await adding
}

async function addOn(where: Where, limit: number, connection: Connection): Promise<Added | NotAdded> {
  const commit = commitOn(connection, where.checker)
  if (!connection.isTransaction) {
    const renewed = onlyRow(await ask(where, connection, 'renew', renewStatement, { commit }))
    if (renewed) return addedIn(where, limit, exactNumbers(renewed['numbers']), false)
  }
  const work = async (own: Connection) => {
    await ask(where, own, 'lock', lockStatement)
    const row = mustHave(onlyRow(await ask(where, own, 'add', addStatement, { commit, limit })))
    const numbers = exactNumbers(row['numbers'])
    if (mustHave(row['fits'])) return addedIn(where, limit, numbers, !mustHave(row['known']))
    const [now = 0, , frees = 0] = numbers
    const reset = limit === 0 ? Number.POSITIVE_INFINITY : answeredTime(frees)
    return { success: false, limit, remaining: 0, reset, retryAfter: reset - now } as const
  }
  // It takes back the head of a key that has no member.
  return inTransactionIf(connection, work, ({ success }) => success)
}

function addedIn({ windowMs }: Where, limit: number, numbers: readonly number[], isNew: boolean): Added {
  const [now = 0, others = 0] = numbers
  const remaining = Math.max(limit - others - 1, 0)
  return { success: true, isNew, limit, remaining, reset: answeredTime(now + windowMs), retryAfter: 0 }
}

/** Removes a member. Returns whether it counted. */
export function remove(where: Where, tx: Database | undefined): Promise<boolean> {
  const { checker } = where
  const removeOn = async (connection: Connection) => {
    const commit = commitOn(connection, checker)
    const row = onlyRow(await ask(where, connection, 'remove', removeStatement, { commit }))
    return row?.['counted'] === true
  }
  // Who locks a member for longer than a statement has locked the head of its key before.
  const work = async (own: Connection) => {
    await ask(where, own, 'lock', lockStatement)
    return removeOn(own)
  }
  return withinTimeout([checker], tx, (at) =>
    runOn(checker, at, 'changes', (connection) =>
      connection.isTransaction ? inTransactionIf(connection, work, (isDone) => isDone) : removeOn(connection),
    ),
  )
}

/** The members of a key that count, or the one. */
export function list(where: Where, which: 'all' | 'one', tx: Database | undefined): Promise<Counted[]> {
  const { checker, head } = where
  const read = (connection: Connection) =>
    ask(where, connection, `list ${which}`, (source) => listStatement(source, which))
  return withinTimeout([checker], tx, async (at) => {
    const rows = await runOn(checker, at, 'looks', read)
    const counted = rows.map((row) => membersCounted(row, head))
    return counted.toSorted((one, other) => one.since - other.since || compareText(one.member, other.member))
  })
}

function membersCounted(row: Row, head: string): Counted {
  const [since = 0, seen = 0, ends = 0] = exactNumbers(row['numbers'])
  const member = fromHex(String(mustHave(row['key'])).slice(head.length)) ?? ''
  return { member, since, seen, expires: answeredTime(ends) }
}

/** Rows expire on a grid, as those of limits do, so that most changes leave the indexed column as it is. */
function gridOf(windowMs: number): number {
  return Math.max(1000, Math.floor(windowMs / 8))
}

/** The rows of an answer: a guarded statement without one answers with nothing but sizes. */
async function ask(
  { checker, head, key, windowMs }: Where,
  connection: Connection,
  name: string,
  build: (source: OwnSource) => Statement,
  { commit, limit = 0 }: { readonly commit?: Commit; readonly limit?: number } = {},
): Promise<readonly Row[]> {
  const values = { head, key, windowMs, limit, expiryGridMs: gridOf(windowMs) }
  const send = ownStatement(checker, connection, `members ${name}`, build, values, commit)
  const rows = await send()
  return rows.filter(({ numbers, counted }) => (numbers ?? counted ?? null) !== null)
}
