import { PGlite } from '@electric-sql/pglite'
import type { $Type } from 'drizzle-orm'
import {
  doublePrecision,
  integer,
  type PgColumnBuilderBase,
  type PgSchema,
  pgSchema,
  pgTable,
  serial,
  text,
  timestamp,
} from 'drizzle-orm/pg-core'
import { drizzle, type PgliteDatabase } from 'drizzle-orm/pglite'
import { Ratelimit, tableSql } from 'drizzle-ratelimit'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'

// What the examples in the documents take for granted: an application, on a Postgres inside the process.

/** Its own tables. */
export const TABLES_SQL: string = `
  create table orgs (id text primary key, plan text not null, since timestamptz not null, time_zone text not null);
  create table completions (org text not null, text text not null);
  create table renders (id serial primary key, org text not null, cost integer not null, paid_from timestamptz not null,
    state text not null);
  create table top_ups (id serial primary key, org text not null, credits integer not null);
  create table events (id text primary key);
  create table messages (org text not null);
  create table invoice_lines (id serial primary key, org text not null, start timestamptz not null,
    "end" timestamptz not null, used integer not null);
  create table ledger (org text not null, kind text not null, units integer not null, remaining integer not null,
    at timestamptz not null, event_id text);
  create table mails (org text, share float8, quota integer, until timestamptz, primary key (org, share, quota, until));
`

const client = await PGlite.create()
for (const statement of tableSql()) await client.exec(statement)
await client.exec(TABLES_SQL)

export const db: PgliteDatabase & { $client: PGlite } = drizzle({ client })
export const kysely: Kysely<object> = new Kysely<object>({
  dialect: new PostgresDialect({ pool: new pg.Pool() }),
})
export const limits: PgSchema = pgSchema('limits')
export const api: Ratelimit = new Ratelimit({ db, limiter: Ratelimit.fixedWindow(5, '1m'), prefix: 'api' })

type Table<Columns extends Record<string, PgColumnBuilderBase>> = ReturnType<typeof pgTable<string, Columns>>
type Id = ReturnType<typeof serial>
type Amount = ReturnType<ReturnType<typeof integer>['notNull']>
type Share = ReturnType<ReturnType<typeof doublePrecision>['notNull']>
type Text = ReturnType<ReturnType<typeof text>['notNull']>
type Time = ReturnType<ReturnType<typeof timestamp>['notNull']>

export type Plan = 'trial' | 'team' | 'business' | 'enterprise' | 'suspended'

export const jobs: Table<{ name: Text }> = pgTable('jobs', { name: text().notNull() })
export const orgs: Table<{ id: Text; plan: $Type<Text, Plan>; since: Time; timeZone: Text }> = pgTable(
  'orgs',
  {
    id: text().notNull(),
    plan: text().$type<Plan>().notNull(),
    since: timestamp({ withTimezone: true }).notNull(),
    timeZone: text('time_zone').notNull(),
  },
)
export const completions: Table<{ org: Text; text: Text }> = pgTable('completions', {
  org: text().notNull(),
  text: text().notNull(),
})
export const renders: Table<{ id: Id; org: Text; cost: Amount; paidFrom: Time; state: Text }> = pgTable(
  'renders',
  {
    id: serial(),
    org: text().notNull(),
    cost: integer().notNull(),
    paidFrom: timestamp('paid_from', { withTimezone: true }).notNull(),
    state: text().notNull(),
  },
)
export const topUps: Table<{ id: Id; org: Text; credits: Amount }> = pgTable('top_ups', {
  id: serial(),
  org: text().notNull(),
  credits: integer().notNull(),
})
export const ledgerLines: Table<{
  org: Text
  kind: Text
  units: Amount
  remaining: Amount
  at: Time
  eventId: ReturnType<typeof text>
}> = pgTable('ledger', {
  org: text().notNull(),
  kind: text().notNull(),
  units: integer().notNull(),
  remaining: integer().notNull(),
  at: timestamp({ withTimezone: true }).notNull(),
  eventId: text('event_id'),
})
export const events: Table<{ id: Text }> = pgTable('events', { id: text().notNull() })
export const messages: Table<{ org: Text }> = pgTable('messages', { org: text().notNull() })
export const mails: Table<{ org: Text; share: Share; quota: Amount; until: Time }> = pgTable('mails', {
  org: text().notNull(),
  share: doublePrecision().notNull(),
  quota: integer().notNull(),
  until: timestamp({ withTimezone: true }).notNull(),
})

export const invoiceLines: Table<{ id: Id; org: Text; start: Time; end: Time; used: Amount }> = pgTable(
  'invoice_lines',
  {
    id: serial(),
    org: text().notNull(),
    start: timestamp({ withTimezone: true }).notNull(),
    end: timestamp({ withTimezone: true }).notNull(),
    used: integer().notNull(),
  },
)

export type Org = typeof orgs.$inferSelect
export type Tx = Parameters<Parameters<typeof db.transaction>[0]>[0]

export const org = { id: 'org:1' }
export const job = { name: 'import' }

/** A model, of whose answers only the model knows the price. */
export const llm = {
  estimate: (prompt: string): number => prompt.length * 4,
  complete: async (
    prompt: string,
    _options: { maxTokens?: number } = {},
  ): Promise<{ text: string; tokens: number }> => ({
    text: prompt.toUpperCase(),
    tokens: prompt.length * 3,
  }),
}

/** It makes films, and tells later how many seconds they have. */
export const studio = {
  estimate: (script: string): number => script.length,
  film: async (_script: string, _options: { reference: string }): Promise<void> => {},
}

export async function callPartner(): Promise<string> {
  return 'done'
}

export async function isStillWanted(): Promise<boolean> {
  return false
}

export async function passwordIsRight(_email: string, password: string): Promise<boolean> {
  return password === 'correct horse'
}

/** Work that may run a few times at once. */
export async function writeExport(_org: string, signal: AbortSignal, _fence: number): Promise<void> {
  signal.throwIfAborted()
}

export const steps: readonly ((signal: AbortSignal) => Promise<void>)[] = [async () => {}, async () => {}]

/** The model or the studio said no: it makes nothing, which costs nothing. */
export class Refused extends Error {}

export class QuotaExceeded extends Error {
  readonly retryAfter: number

  constructor(retryAfter: number) {
    super('quota exceeded')
    this.retryAfter = retryAfter
  }
}
