import type { RateLimitTable } from '../../schema/index.ts'
import type { AnyAlgorithm } from '../algorithms/algorithm.ts'
import type { Statement } from '../database/statement.ts'
import { lockStatement, unmakeStatement } from './lock.ts'
import { type LookSource, lookStatement } from './look.ts'
import { type MakeSource, makeStatement } from './make.ts'
import { removeStatement } from './remove.ts'
import { sweepStatement } from './sweep.ts'
import { type TakeManySource, type TakeOneSource, takeManyStatement, takeOneStatement } from './take.ts'
import { usageStatement } from './usage.ts'

// Each statement of a table is built and rendered when it is first needed, and kept as long as the table.
// Building one costs Drizzle more than Postgres takes to run it.

export function takeOne(source: TakeOneSource): Statement {
  return kept(source.table, `one ${nameOf(source)} ${source.intent} ${source.waits}`, () =>
    takeOneStatement(source),
  )
}

export function takeMany(source: TakeManySource): Statement {
  return kept(source.table, `many ${nameOf(source)}`, () => takeManyStatement(source))
}

export function make(source: MakeSource): Statement {
  return kept(source.table, `make ${nameOf(source)} ${source.intent} ${source.waits}`, () =>
    makeStatement(source),
  )
}

export function look(source: LookSource): Statement {
  const { table, algorithm, injectedClock, guarded } = source
  return kept(table, `look ${algorithm.name} ${injectedClock} ${guarded}`, () => lookStatement(source))
}

export function usage(table: RateLimitTable, algorithm: AnyAlgorithm, injectedClock: boolean): Statement {
  return kept(table, `usage ${algorithm.name} ${injectedClock}`, () =>
    usageStatement(table, algorithm, injectedClock),
  )
}

export function lock(table: RateLimitTable): Statement {
  return kept(table, 'lock', () => lockStatement(table))
}

export function unmake(table: RateLimitTable): Statement {
  return kept(table, 'unmake', () => unmakeStatement(table))
}

export function remove(table: RateLimitTable): Statement {
  return kept(table, 'remove', () => removeStatement(table))
}

export function sweep(table: RateLimitTable): Statement {
  return kept(table, 'sweep', () => sweepStatement(table))
}

function nameOf({ algorithm, injectedClock, commit, guarded }: TakeManySource): string {
  return `${algorithm.name} ${injectedClock} ${commit} ${guarded}`
}

const rendered = new WeakMap<RateLimitTable, Map<string, Statement>>()

function kept(table: RateLimitTable, name: string, build: () => Statement): Statement {
  const ofTable = rendered.get(table) ?? new Map<string, Statement>()
  rendered.set(table, ofTable)
  const known = ofTable.get(name) ?? build()
  ofTable.set(name, known)
  return known
}
