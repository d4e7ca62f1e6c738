import { sql } from 'drizzle-orm'
import { remainingOf } from '../answers/capacity.ts'
import { afterCalls, type Outcome, paymentOf, returnedBy } from '../answers/outcome.ts'
import { type Connection, connectionTo } from '../database/connection.ts'
import type { Database } from '../database/database.ts'
import { isRefusal, toRatelimitError } from '../database/database-error.ts'
import { isTransient } from '../database/retry.ts'
import { execute } from '../database/run.ts'
import { inTransaction } from '../database/transaction.ts'
import { RatelimitError } from '../errors.ts'
import { applies } from '../runtime/ask.ts'
import type { Answers, Asked, Call, Ledger } from '../runtime/call.ts'
import type { Entry, OnEntries } from '../runtime/entry.ts'
import { DEBT, GRANT } from '../statements/grants.ts'
import { fromHex } from './hex-id.ts'

/** An entry, and the callback that gets it. */
export interface Recorded {
  readonly onEntries: OnEntries
  readonly entry: Entry
}

/** A statement whose entries are handed out. */
export interface Recording<T> {
  readonly connection: Connection
  /** Whether the statement sets a short `lock_timeout`. */
  readonly isBrief: boolean
  run(own: Connection): Promise<T>
  recordedBy(result: T): readonly Recorded[]
}

/**
 * Runs a statement and hands out its entries in the same transaction: one of its own, or a savepoint of the
 * caller's. If that fails, both are rolled back.
 *
 * @throws RatelimitError `ENTRIES_FAILED`, and each error of the database or the driver.
 */
export function record<T>({ connection, isBrief, run, recordedBy }: Recording<T>): Promise<T> {
  const within = connection.isTransaction ? inSavepoint : inOwnTransaction
  return within(connection, async (own) => {
    const result = await run(own)
    const recorded = recordedBy(result)
    if (recorded.length === 0) return result
    // The statement has set it for the transaction, which goes on.
    if (isBrief && !connection.isTransaction) await execute(own.db, sql`set local lock_timeout to default`)
    for (const onEntries of new Set(recorded.map((each) => each.onEntries))) {
      const entries = recorded.filter((each) => each.onEntries === onEntries).map(({ entry }) => entry)
      await handOut(onEntries, own.db, entries)
    }
    return result
  })
}

/** Its statements may be kept: if a pooler refuses one, the whole transaction runs again without. */
async function inOwnTransaction<T>(
  connection: Connection,
  work: (own: Connection) => Promise<T>,
): Promise<T> {
  const { session, keeping } = connection
  const begin = () =>
    inTransaction(connection, (own) =>
      work(session ? { ...connectionTo(own.db, { ...keeping, wish: true }), keeping } : own),
    )
  try {
    return await begin()
  } catch (error) {
    if (error instanceof RatelimitError && isRefusal(error)) return begin()
    throw error
  }
}

/** By SQL, so that the caller's own `tx` is handed out, and because Kysely has no nested transactions. */
async function inSavepoint<T>(connection: Connection, work: (own: Connection) => Promise<T>): Promise<T> {
  const { db } = connection
  await execute(db, sql`savepoint ratelimit_entries`)
  try {
    const result = await work(connection)
    await execute(db, sql`release savepoint ratelimit_entries`)
    return result
  } catch (error) {
    // If this fails, the transaction is lost, and the first error says why.
    await execute(db, sql`rollback to savepoint ratelimit_entries`).catch(() => {})
    throw error
  }
}

async function handOut(onEntries: OnEntries, tx: Database, entries: readonly Entry[]): Promise<void> {
  try {
    await onEntries(tx, entries)
  } catch (cause) {
    const error = toRatelimitError(cause)
    // It lost against another transaction, so another try may succeed.
    if (isTransient(error)) throw error
    const message = 'onEntries has failed; see cause. Nothing was charged.'
    throw new RatelimitError('ENTRIES_FAILED', message, { cause })
  }
}

/** Records what the calls of one limiter charge. */
export function recordCalls(
  about: Pick<Ledger, 'onEntries' | 'hasGrants'> & About,
  ...[connection, asked, isBrief, run]: Parameters<Ledger['record']>
): Promise<Answers> {
  const { onEntries } = about
  const recordedBy = (answers: Answers) =>
    entriesOf(about, asked, answers).map((entry) => ({ onEntries, entry }))
  return record({ connection, isBrief, run, recordedBy })
}

/** The entries of the calls that a statement has granted. */
function entriesOf(about: About, asked: readonly Asked[], answers: Answers): Entry[] {
  return asked.flatMap((each, i) => {
    const decision = answers[i]
    if (!decision || decision.isOther || !applies(each, decision)) return []
    const places = Array.from({ length: Math.min(decision.granted, each.calls.length) }, (_, place) => place)
    return places.flatMap((place) => entryOf({ call: each.request, decision, place }, about) ?? [])
  })
}

/** What an entry says beside the change. */
interface About {
  readonly prefix: string
  readonly hasGrants: boolean
  readonly id?: string | undefined
  readonly kind?: Entry['kind'] | undefined
}

/** The entry of a granted call. Undefined if it has changed no count. */
export function entryOf(outcome: Outcome, { prefix, hasGrants, id, kind }: About): Entry | undefined {
  const { call, decision, place } = outcome
  const { key, limiter, purpose } = call
  if (purpose === 'look' || purpose === 'block') return undefined
  const units = unitsOf(outcome)
  if (units === 0) return undefined
  return {
    ...{
      prefix,
      ...(hasGrants ? grantIn(key) : { key }),
      kind: kind ?? kindOf(call),
      units,
      at: decision.now,
    },
    remaining: remainingOf(limiter, afterCalls(outcome, place + 1)),
    ...(limiter.algorithm.kind === 'window' ? { start: decision.state.windowStart } : {}),
    ...(id === undefined ? {} : { id }),
  }
}

function unitsOf(outcome: Outcome): number {
  const { call, decision } = outcome
  if (call.rate < 0) return -returnedBy(outcome)
  // A grant of credits fills a new row only.
  const isRepeated = call.limiter.algorithm.name === 'credits' && (decision.state.prevCount ?? 0) > 0
  return call.purpose === 'grant' && isRepeated ? 0 : paymentOf(outcome).rate
}

/** The limited key and the grant in the key of a row of credits. What is owed has no grant. */
function grantIn(row: string): Pick<Entry, 'key' | 'grant'> {
  if (row.endsWith(DEBT)) return { key: row.slice(0, -DEBT.length) }
  const at = row.lastIndexOf(GRANT)
  return { key: row.slice(0, at), grant: fromHex(row.slice(at + GRANT.length)) ?? '' }
}

function kindOf({ rate, reserved, purpose }: Call): Entry['kind'] {
  if (purpose === 'grant') return 'grant'
  if (reserved !== 0) return reserved > 0 ? 'reserve' : 'settle'
  return rate < 0 ? 'refund' : 'charge'
}
