import type { Checker } from '../check/checker.ts'
import { outsideQueue } from '../check/outside-queue.ts'
import type { Connection } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { retrying } from '../database/retry.ts'
import { mustHave, onlyRow } from '../database/rows.ts'
import { type Row, run } from '../database/run.ts'
import type { Statement, Value } from '../database/statement.ts'
import { timed } from '../diagnostics.ts'
import { acquireStatement, type LeaseAction, type LeaseSource, leaseStatement } from '../statements/lease.ts'
import { kept } from '../statements/statements.ts'

/** A slot of a key, under a lease. */
export interface Slot {
  /** The key of its row. */
  readonly key: string
  readonly fence: number
}

/** What a statement found that was to lease a slot. */
export interface Look {
  readonly slot: Slot | undefined
  /** How many slots could have been leased, or are held by others for a moment. */
  readonly open: number
  /** Milliseconds until the first lease ends. Undefined if there is none. */
  readonly endsInMs: number | undefined
  /** When the statement was sent, by the monotonic clock. */
  readonly sentAt: number
}

/** What a look for a slot needs to know. */
export interface Sought {
  readonly key: string
  readonly limit: number
  readonly leaseMs: number
  /** Whether it has waited, and so may take a slot for which others wait. */
  readonly waited: boolean
  /** Whether it goes on waiting if it finds none. */
  readonly waits: boolean
}

/** Rows expire on a grid of an hour or more, so that most updates leave the indexed column as it is (HOT). */
const MIN_GRID_MS = 3_600_000

/** Leases a slot, if one is free. If `hasGivenUp` then says so, it releases the slot again. */
export function look(
  checker: Checker,
  sought: Sought,
  joined: Connection | undefined,
  hasGivenUp: () => boolean,
): Promise<Look> {
  const { key, limit, leaseMs, waited, waits } = sought
  const values = {
    ...{ key, limit, leaseMs, waited: Number(waited), waits: Number(waits) },
    expiryGridMs: Math.max(MIN_GRID_MS, leaseMs),
  }
  const isJoined = joined !== undefined
  const build = (source: LeaseSource) => acquireStatement({ ...source, joined: isJoined })
  return runOn(checker, joined, async (connection, isOver) => {
    const sentAt = performance.now()
    const row = await ask(checker, connection, `acquire ${isJoined}`, build, values)
    const found = lookOf(row, sentAt)
    if ((isOver() || hasGivenUp()) && found.slot)
      await askToChange(checker, connection, 'release', found.slot, leaseMs)
    return found
  })
}

function lookOf(row: Row, sentAt: number): Look {
  const [slot, ends] = [mustHave(row['slot']), mustHave(row['ends'])]
  return {
    slot: slot === null ? undefined : { key: String(slot), fence: Number(mustHave(row['fence'])) },
    open: Number(mustHave(row['open'])),
    endsInMs: ends === null ? undefined : Number(ends) - Number(mustHave(row['now'])),
    sentAt,
  }
}

/** Ends or extends the lease of a slot, and returns whether it was still held under this lease. */
export function change(
  checker: Checker,
  action: LeaseAction,
  slot: Slot,
  leaseMs: number,
  tx: Database | undefined,
): Promise<boolean> {
  return runOn(checker, checker.joined(tx), (connection) =>
    askToChange(checker, connection, action, slot, leaseMs),
  )
}

async function askToChange(
  checker: Checker,
  connection: Connection,
  action: LeaseAction,
  { key, fence }: Slot,
  leaseMs: number,
): Promise<boolean> {
  const values = { slot: key, fence, leaseMs, expiryGridMs: Math.max(MIN_GRID_MS, leaseMs) }
  const build = (source: LeaseSource) => leaseStatement(source, action)
  const row = await ask(checker, connection, action, build, values)
  return Number(mustHave(row['changed'])) > 0
}

/** Runs the work in the transaction that it joins, or alone, where it is retried if it lost against another. */
async function runOn<T>(
  checker: Checker,
  joined: Connection | undefined,
  work: (connection: Connection, isOver: () => boolean) => Promise<T>,
): Promise<T> {
  if (joined) return work(joined, () => false)
  return outsideQueue(checker, { mayCharge: true, mayWait: false, isContended: false }, async (isOver) => {
    await checker.config.ensureTables?.()
    return retrying(() => work(checker.config.home, isOver))
  })
}

async function ask(
  { config }: Checker,
  connection: Connection,
  name: string,
  build: (source: LeaseSource) => Statement,
  values: Record<string, Value>,
): Promise<Row> {
  const { table, namespace } = config
  const clock = namespace.clock?.() ?? null
  const commit = connection.isTransaction ? 'as the session' : config.commit
  const injectedClock = clock !== null
  const statementFor = (guarded: boolean) =>
    kept(table.statements, `${name} ${injectedClock} ${commit} ${guarded}`, () =>
      build({ table: table.table, injectedClock, commit, guarded }),
    )
  const { prefix } = namespace
  const rows = await timed({ prefix, statement: 'lease', keys: 1 }, () =>
    run(connection, [table.size], statementFor, { ...values, prefix, clock }, {}),
  )
  return mustHave(onlyRow(rows))
}
