import { type SQL, sql } from 'drizzle-orm'
import type { Database } from '../../../src/index.ts'
import { TestClock } from '../clock.ts'
import type { TestDatabase } from '../databases.ts'
import { randomFrom } from '../random.ts'

export const DAY_MS = 86_400_000
export const FIRST: number = Date.UTC(2026, 0, 1)

export interface Year {
  readonly customers: number
  /** How many of them call on a day. */
  readonly callsADay: number
  readonly callers: number
  readonly seed: number
  /** Ends a transaction before its commit: it throws, or breaks the connection. */
  crash(tx: Database): Promise<unknown>
}

/** How often what may happen has happened. */
const WHAT = [
  'charged',
  'denied',
  'repeated',
  'reserved',
  'abandoned',
  'settled',
  'settledAgain',
  'endedByTime',
  'releasedByTime',
  'toldByCalls',
  'closed',
  'endedByChanges',
  'changed',
  'corrected',
  'crashed',
  'granted',
  'grantedAgain',
  'taken',
  'owed',
  'givenBack',
  'voided',
  'expired',
  'late',
  'bought',
  'spent',
  'spentTooMuch',
  'spentAgain',
  'spentMore',
  'owedByMonth',
  'owedByBought',
  'returned',
  'returnedLate',
] as const
export type What = (typeof WHAT)[number]

/** Where the year takes place. */
export interface World {
  readonly database: TestDatabase
  readonly db: Database
  readonly clock: TestClock
  /** From 0 to 1. */
  random(): number
  /** A whole number below. */
  whole(below: number): number
  /** Takes one of the list out of it. */
  takeOne<T>(list: T[]): T | undefined
  /**
   * Runs a transaction, which may crash before its commit. Returns whether it has committed. What it saw is
   * counted if it has.
   */
  commits(work: (tx: Database, saw: (what: What, times?: number) => void) => Promise<void>): Promise<boolean>
  /** Inserts a row. */
  note(tx: Database, table: SQL, values: readonly (string | number | boolean)[]): Promise<void>
  readonly seen: Record<What, number>
}

export function worldOf(database: TestDatabase, db: Database, { seed, crash }: Year): World {
  const random = randomFrom(seed)
  const whole = (below: number) => Math.floor(random() * below)
  const seen = Object.fromEntries(WHAT.map((what) => [what, 0])) as Record<What, number>
  return {
    ...{ database, db, random, whole, seen, clock: new TestClock(FIRST) },
    takeOne: (list) => list.splice(whole(list.length), 1)[0],
    async commits(work) {
      const isLost = random() < 0.15
      const saw: [What, number][] = []
      try {
        await db.transaction(async (tx) => {
          await work(tx, (what, times = 1) => saw.push([what, times]))
          if (isLost) await crash(tx)
        })
        for (const [what, times] of saw) seen[what] += times
        return true
      } catch (error) {
        if (!isLost) throw error
        seen.crashed++
        return false
      }
    },
    async note(tx, table, values) {
      const list = values.map((value) => (typeof value === 'number' ? sql`${value}::float8` : sql`${value}`))
      await tx.execute(sql`insert into ${table} values (${sql.join(list, sql`, `)})`)
    },
  }
}

export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, amount) => sum + amount, 0)
}
