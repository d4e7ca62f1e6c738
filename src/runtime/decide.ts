import type { RateLimitTable } from '../../schema/index.ts'
import {
  type AnyAlgorithm,
  type Limiter,
  type Numbers,
  type Params,
  paramsAt,
  type StateColumn,
} from '../algorithms/algorithm.ts'
import { toRatelimitError } from '../database/database-error.ts'
import type { Rendered, Values } from '../database/rendered.ts'
import { type Row, type Runner, run } from '../database/run.ts'
import { RatelimitError } from '../errors.ts'
import type { Commit } from '../statements/check.ts'
import { bindOf, type Form, formOf, inLockOrder } from '../statements/input.ts'
import { check, look as lookAt, reset } from '../statements/statements.ts'

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
  /** Whether it consumes whatever is left, into debt. */
  readonly force: boolean
  /** The start of the window that paid for what is given back, which no other window gives; null where any does. */
  readonly paidFrom: number | null
  /** Shares of the limit whose crossing the answer tells. */
  readonly thresholds: readonly number[]
  /** Whether a denial is only told. */
  readonly dryRun: boolean
}

/** Equal calls of one key, decided together. */
export interface CallGroup extends Call {
  readonly calls: number
}

/** A state at a moment. */
export interface Standing {
  readonly now: number
  readonly state: Numbers<StateColumn>
  /** The limiter's parameters at that time. */
  readonly params: Params
}

/** What became of a group of calls: how many were granted, and the state after them. */
export interface Decision extends Standing {
  readonly granted: number
  /** The most that was used in the window before, where the algorithm keeps it. */
  readonly peak: number
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
  const times = new Map<G, number>()
  for (let attempts = 0; attempts < MOST_ATTEMPTS; attempts++) {
    const undecided = groups.filter((group) => !outcomes.has(group))
    if (undecided.length === 0) return outcomes
    try {
      const rows = await attempt(() =>
        ask(target, undecided, times, (algorithm, form) => check(target.table, algorithm, form, commit)),
      )
      for (const { group, row, standing } of rows) {
        times.set(group, standing.now)
        if (!row['decided']) continue
        outcomes.set(group, { ...standing, granted: Number(row['granted']), peak: Number(row['peak'] ?? 0) })
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
  return new Map(groups.map((group) => [group, outcomes.get(group) ?? contention()]))
}

function contention(): RatelimitError {
  return new RatelimitError(
    'CONTENTION',
    `A new key was made and removed by others ${MOST_ATTEMPTS} times while it was checked; nothing was charged for it.`,
  )
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
  const standings = new Map<G, Standing>()
  const times = new Map<G, number>()
  for (let attempts = 0; attempts < MOST_ATTEMPTS; attempts++) {
    const unseen = groups.filter((group) => !standings.has(group))
    if (unseen.length === 0) return standings
    const rows = await ask(target, unseen, times, (algorithm, form) => lookAt(target.table, algorithm, form))
    for (const { group, row, standing } of rows) {
      times.set(group, standing.now)
      if (row['decided']) standings.set(group, standing)
    }
  }
  throw contention()
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

interface Asked<G> {
  readonly group: G
  readonly row: Row
  readonly standing: Standing
}

/**
 * Sends the groups with the statement for their algorithm, numbers and number; gives each its row.
 *
 * Parameters that depend on the time are those of `times`, or of this machine's clock. It is a guess: the statement decides nothing when the
 * database's time has others.
 */
async function ask<G extends CallGroup>(
  target: Target,
  groups: readonly G[],
  times: ReadonlyMap<G, number>,
  statement: (algorithm: AnyAlgorithm, form: Form) => Rendered,
): Promise<Asked<G>[]> {
  const [first] = groups
  if (!first) return []
  const asked = inLockOrder(groups, nameOf).map((group) => {
    const clock = group.namespace.clock()
    const params = paramsAt(group.limiter, times.get(group) ?? clock ?? Date.now())
    return { group, params, values: valuesOf(group, clock, params) }
  })
  const values = asked.map((each) => each.values)
  const form = formOf(values)
  const { algorithm } = first.limiter
  const rows = await run(target, statement(algorithm, form), bindOf(form, values))
  const byPlace = new Map(rows.map((row) => [Number(row['place']), row]))
  return asked.map(({ group, params }, i) => {
    const row = of(i + 1, byPlace)
    return { group, row, standing: standingOf(row, group.limiter, params) }
  })
}

export function nameOf({ namespace, key }: Call): { prefix: string; key: string } {
  return { prefix: namespace.prefix, key }
}

function valuesOf(
  { namespace, key, rate, calls, force, paidFrom }: CallGroup,
  clock: number | null,
  params: Params,
): Values {
  return { prefix: namespace.prefix, key, clock, rate, calls, force: Number(force), paidFrom, ...params }
}

/** Drivers differ in how they hand on numbers. All of these are doubles. */
export function standingOf(row: Row, { algorithm }: Limiter, params: Params): Standing {
  const state = Object.fromEntries(algorithm.columns.map((column) => [column, Number(row[column])]))
  return {
    now: Number(row['now']),
    // The algorithm reads its own columns only.
    state: state as Numbers<StateColumn>,
    params,
  }
}

function noRow(): RatelimitError {
  return new RatelimitError('DATABASE', "The database's answer has no row for a key.")
}
