import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm, Limiter, Numbers, StateColumn } from '../algorithms/algorithm.ts'
import type { Database } from '../database/database.ts'
import type { Values } from '../database/rendered.ts'
import { type Row, run } from '../database/run.ts'
import { RatelimitError } from '../errors.ts'
import type { Commit } from '../statements/check.ts'
import { check, remaining, reset } from '../statements/statements.ts'

/** One call, found valid. */
export interface Call {
  readonly key: string
  readonly rate: number
  readonly limiter: Limiter
}

/** Equal calls of one key, decided together. */
export interface CallGroup extends Call {
  readonly calls: number
}

/** Where rows are, and whose. */
export interface Place {
  readonly db: Database
  readonly table: RateLimitTable
  readonly prefix: string
  /** The injected time in Unix milliseconds, or null for the database's. */
  clock(): number | null
}

/** A state at a moment. */
export interface Standing {
  readonly now: number
  readonly available: number
  readonly state: Numbers<StateColumn>
}

/** What became of a group of calls: how many were granted, and the state after them. */
export interface Decision extends Standing {
  readonly granted: number
}

/** Decisions by their keys. */
export type Decisions = ReadonlyMap<string, Decision>

/** The race of a first insert is lost to one other each time; lost so often, something else is wrong. */
const MOST_ATTEMPTS = 50

/**
 * Decides groups of calls, all of one algorithm and each with its own key, in one statement.
 *
 * Keys that lose the race of a first insert were not charged, and are decided by another statement.
 *
 * @throws RatelimitError `CONTENTION` when keys stay undecided.
 */
export async function decide(place: Place, groups: readonly CallGroup[], commit: Commit): Promise<Decisions> {
  const decisions = new Map<string, Decision>()
  for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    const undecided = groups.filter(({ key }) => !decisions.has(key))
    const [first, second] = undecided
    if (!first) return decisions
    const { algorithm } = first.limiter
    const rows = await run(place.db, check(place.table, algorithm, second ? 'many' : 'one', commit), {
      prefix: place.prefix,
      clock: place.clock(),
      ...(second ? { batch: JSON.stringify(undecided.map(inputOf)) } : inputOf(first)),
    })
    if (rows.length !== undecided.length) throw noRow()
    for (const row of rows) {
      if (!row['decided']) continue
      decisions.set(String(row['callKey']), {
        ...standingOf(row, algorithm),
        granted: Number(row['granted']),
      })
    }
  }
  throw new RatelimitError(
    'CONTENTION',
    `A new key was made and removed by others ${MOST_ATTEMPTS} times while it was checked; nothing was charged for it.`,
  )
}

/** The decision for a group that was decided. */
export function decisionFor({ key }: Call, decisions: Decisions): Decision {
  const decision = decisions.get(key)
  if (!decision) throw noRow()
  return decision
}

/** Looks at a key without locking or writing. */
export async function look(place: Place, key: string, limiter: Limiter): Promise<Standing> {
  const { algorithm } = limiter
  const [row] = await run(place.db, remaining(place.table, algorithm), {
    prefix: place.prefix,
    clock: place.clock(),
    ...inputOf({ key, rate: 0, calls: 1, limiter }),
  })
  if (!row) throw noRow()
  return standingOf(row, algorithm)
}

/** Removes a key's row. */
export async function remove(place: Place, key: string): Promise<void> {
  await run(place.db, reset(place.table), { prefix: place.prefix, key })
}

function noRow(): RatelimitError {
  return new RatelimitError('DATABASE', "The database's answer has no row for a key.")
}

function inputOf({ key, rate, calls, limiter }: CallGroup): Values {
  return { key, rate, calls, ...limiter.params }
}

/** Drivers differ in how they hand on numbers. All of these are doubles. */
function standingOf(row: Row, algorithm: AnyAlgorithm): Standing {
  const state = Object.fromEntries(algorithm.columns.map((column) => [column, Number(row[column])]))
  return {
    now: Number(row['now']),
    available: Number(row['available']),
    // The algorithm reads its own columns only.
    state: state as Numbers<StateColumn>,
  }
}
