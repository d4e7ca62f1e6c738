import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm, Limiter, Numbers, StateColumn } from '../algorithms/algorithm.ts'
import { toRatelimitError } from '../database/database-error.ts'
import type { Rendered, Values } from '../database/rendered.ts'
import { type Row, type Runner, run } from '../database/run.ts'
import { RatelimitError } from '../errors.ts'
import type { Commit } from '../statements/check.ts'
import { batchOf, batchOfOne, type Form, inLockOrder } from '../statements/input.ts'
import { check, look as lookAt, reset } from '../statements/statements.ts'
import { sameLimiter } from './queue.ts'

/** Where the rows are. */
export interface Target extends Runner {
  readonly table: RateLimitTable
}

/** Whose rows they are, and in whose time. */
export interface Namespace {
  readonly prefix: string
  /** The injected time in Unix milliseconds, or null for the database's. */
  clock(): number | null
}

/** One call, found valid. */
export interface Call {
  readonly namespace: Namespace
  readonly key: string
  readonly rate: number
  readonly limiter: Limiter
}

/** Equal calls of one key, decided together. */
export interface CallGroup extends Call {
  readonly calls: number
}

/** A state at a moment. */
export interface Standing {
  readonly now: number
  readonly state: Numbers<StateColumn>
}

/** What became of a group of calls: how many were granted, and the state after them. */
export interface Decision extends Standing {
  readonly granted: number
}

/** The race of a first insert is lost to one other each time; lost so often, something else is wrong. */
const MOST_ATTEMPTS = 50

/** What is known of each of several groups. */
export type Of<G, T> = ReadonlyMap<G, T>

/** How a statement is run: once, in a caller's transaction, or again when it lost against another. */
export type Attempt = <T>(statement: () => Promise<T>) => Promise<T>

/** In a caller's transaction nothing is run again. */
export const once: Attempt = (statement) => statement()

/**
 * Decides groups of calls, all of one algorithm and each with its own row, in one statement.
 *
 * Those that lose the race of a first insert were not charged, and are decided by another statement. What that one meets does
 * not change what the first has decided: each group has its own outcome, a decision or the error.
 */
export async function decide<G extends CallGroup>(
  target: Target,
  groups: readonly G[],
  commit: Commit,
  attempt: Attempt,
): Promise<Of<G, Decision | RatelimitError>> {
  const outcomes = new Map<G, Decision | RatelimitError>()
  for (let attempts = 0; attempts < MOST_ATTEMPTS; attempts++) {
    const undecided = groups.filter((group) => !outcomes.has(group))
    if (undecided.length === 0) return outcomes
    try {
      const rows = await attempt(() =>
        ask(target, undecided, (algorithm, form) => check(target.table, algorithm, form, commit)),
      )
      for (const [group, row] of rows) {
        if (!row['decided']) continue
        outcomes.set(group, { ...standingOf(row, group), granted: Number(row['granted']) })
      }
    } catch (error) {
      const failure = toRatelimitError(error)
      // A key that this database cannot store, such as one outside its encoding, fails alone.
      if (failure.sqlState?.startsWith('22') && undecided.length > 1 && attempt !== once) {
        for (const group of undecided) {
          outcomes.set(group, of(group, await decide(target, [group], commit, attempt)))
        }
      } else for (const group of undecided) outcomes.set(group, failure)
    }
  }
  const contention = new RatelimitError(
    'CONTENTION',
    `A new key was made and removed by others ${MOST_ATTEMPTS} times while it was checked; nothing was charged for it.`,
  )
  return new Map(groups.map((group) => [group, outcomes.get(group) ?? contention]))
}

/** The decision for a group; throws the error where that was its outcome. */
export function decisionFor<G>(group: G, outcomes: Of<G, Decision | RatelimitError>): Decision {
  const outcome = of(group, outcomes)
  if (outcome instanceof RatelimitError) throw outcome
  return outcome
}

/** Looks at the rows of groups of calls, all of one algorithm, without locking or writing. */
export async function look<G extends CallGroup>(
  target: Target,
  groups: readonly G[],
): Promise<Of<G, Standing>> {
  const rows = await ask(target, groups, (algorithm, form) => lookAt(target.table, algorithm, form))
  return new Map(rows.map(([group, row]) => [group, standingOf(row, group)]))
}

/** Removes a key's row. */
export async function remove(target: Target, { prefix }: Namespace, key: string): Promise<void> {
  await run(target, reset(target.table), { prefix, key })
}

/** What was found out of a group that was asked about. */
export function of<G, T>(group: G, answers: Of<G, T>): T {
  const answer = answers.get(group)
  if (answer === undefined) throw noRow()
  return answer
}

/** Sends the groups with the statement for their algorithm, limiters and number; gives each its row. */
async function ask<G extends CallGroup>(
  target: Target,
  groups: readonly G[],
  statement: (algorithm: AnyAlgorithm, form: Form) => Rendered,
): Promise<(readonly [G, Row])[]> {
  const [first] = groups
  if (!first) return []
  const ordered = inLockOrder(groups, nameOf)
  const values = ordered.map(valuesOf)
  const form = formOf(groups)
  const { algorithm } = first.limiter
  const bound = { one: () => values[0] ?? {}, many: () => batchOfOne(values), several: () => batchOf(values) }
  const rows = await run(target, statement(algorithm, form), bound[form]())
  const byPlace = new Map(rows.map((row) => [Number(row['place']), row]))
  return ordered.map((group, i) => [group, of(i + 1, byPlace)])
}

function formOf([first, ...others]: readonly Call[]): Form {
  if (others.length === 0) return 'one'
  const alike = (other: Call) =>
    other.namespace === first?.namespace && sameLimiter(other.limiter, first.limiter)
  return others.every(alike) ? 'many' : 'several'
}

export function nameOf({ namespace, key }: Call): { prefix: string; key: string } {
  return { prefix: namespace.prefix, key }
}

function valuesOf({ namespace, key, rate, calls, limiter }: CallGroup): Values {
  return { prefix: namespace.prefix, key, clock: namespace.clock(), rate, calls, ...limiter.params }
}

/** Drivers differ in how they hand on numbers. All of these are doubles. */
function standingOf(row: Row, { limiter }: Call): Standing {
  const state = Object.fromEntries(limiter.algorithm.columns.map((column) => [column, Number(row[column])]))
  return {
    now: Number(row['now']),
    // The algorithm reads its own columns only.
    state: state as Numbers<StateColumn>,
  }
}

function noRow(): RatelimitError {
  return new RatelimitError('DATABASE', "The database's answer has no row for a key.")
}
