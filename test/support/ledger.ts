import { bigint, doublePrecision, pgTable, text } from 'drizzle-orm/pg-core'
import type { Entry } from '../../src/ledger/index.ts'
import type { Db, TestDatabase } from './databases.ts'

/** An application's own table of what was charged. */
const ledger = pgTable('app_ledger', {
  prefix: text('prefix').notNull(),
  key: text('key').notNull(),
  kind: text('kind').notNull(),
  units: doublePrecision('units').notNull(),
  remaining: doublePrecision('remaining').notNull(),
  at: bigint('at', { mode: 'number' }).notNull(),
  start: bigint('start', { mode: 'number' }),
  id: text('id'),
  grant: text('grant'),
})

export async function createLedger({ script }: Pick<TestDatabase, 'script'>): Promise<void> {
  await script(`create table app_ledger (prefix text not null, key text not null, kind text not null,
    units float8 not null, remaining float8 not null, at bigint not null, start bigint, id text, "grant" text)`)
}

/** Writes the entries. */
export async function writeEntries(tx: Pick<Db, 'insert'>, entries: readonly Entry[]): Promise<void> {
  await tx.insert(ledger).values([...entries])
}

/** The entries of a prefix that were committed. */
export async function entriesOf(db: Db, prefix: string): Promise<Partial<Entry>[]> {
  const rows = await db.select().from(ledger)
  return rows
    .filter((row) => row.prefix === prefix)
    .map(({ prefix: _, start, id, grant, ...row }) => ({
      ...row,
      ...(start === null ? {} : { start }),
      ...(id === null ? {} : { id }),
      ...(grant === null ? {} : { grant }),
    })) as Partial<Entry>[]
}
