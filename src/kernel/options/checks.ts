import { is } from 'drizzle-orm'
import { PgTable } from 'drizzle-orm/pg-core'
import type { RateLimitTables } from '../../../schema/index.ts'
import { HANDLE } from '../base/handle.ts'
import { type Database, isTransaction } from '../database/database.ts'
import { type Duration, parseDuration } from '../duration.ts'
import type { Layer } from './layer.ts'
import { checkOption } from './validate.ts'

// What the values of the constructor's options may be. Untyped callers may give anything. Each check throws a
// `RatelimitError`, most with `INVALID_OPTION`.

/** In characters. Shorter secrets can be guessed. */
const MIN_SECRET = 16

export function checkFunction(value: unknown, name: string): void {
  checkOption(typeof value === 'function', `${name} must be a function.`)
}

export function ofQuota(_: unknown, name: string): void {
  checkOption(false, `${name} is an option of Quota, from drizzle-ratelimit/quota.`)
}

export function checkTx(tx: unknown): void {
  checkOption(tx === null || isTransaction(tx), 'tx must be a transaction of Drizzle.')
}

export function checkTimeout(value: Duration | false, name: string): void {
  if (value !== false) parseDuration(value, name)
}

export function checkShare(value: number, name: string): void {
  checkOption(Number.isFinite(value) && value >= 0 && value <= 1, `${name} must be a number from 0 to 1.`)
}

/** A check that the value is a whole number from 1 to `max`. */
export function upTo(max: number): (value: unknown, name: string) => void {
  return (value, name) =>
    checkOption(
      typeof value === 'number' && Number.isSafeInteger(value) && value > 0 && value <= max,
      `${name} must be a whole number from 1 to ${max}.`,
    )
}

/** A check that the value is one of these words. */
export function wordOf(...words: readonly unknown[]): (value: unknown, name: string) => void {
  return (value, name) =>
    checkOption(words.includes(value), `${name} must be one of these: '${words.join("', '")}'.`)
}

export function checkHashKeys(value: unknown, name: string): void {
  const needed = `true, false, or a secret of at least ${MIN_SECRET} characters`
  const isSecret = typeof value === 'string' && value.length >= MIN_SECRET
  checkOption(typeof value === 'boolean' || isSecret, `${name} must be ${needed}.`)
}

export function checkThresholds(value: unknown, name: string): void {
  checkOption(
    Array.isArray(value) && Array.from(value).every(isThreshold),
    `${name} must be a list of shares above 0 and below 10 (80 % is 0.8), { used } above 0, and { left } of 0 or more.`,
  )
}

export function checkUse(use: unknown): void {
  const layers: unknown[] = Array.isArray(use) ? Array.from(use) : [undefined]
  checkOption(
    layers.every(isLayer) && new Set(layers.map(({ name }) => name)).size === layers.length,
    'use must be a list of layers of this version, such as countDenials(), with names of their own.',
  )
}

function isLayer(layer: unknown): layer is Layer {
  const { name, decided, failed, close, [HANDLE]: own } = Object(layer)
  const functions = [decided, failed, close].filter((each) => each !== undefined)
  return (
    typeof name === 'string' &&
    (own || functions.length > 0) &&
    functions.every((each) => typeof each === 'function')
  )
}

function isThreshold(value: unknown): boolean {
  // A share of 10 and more is meant as a percentage, and would never be reached.
  if (typeof value === 'number') return value > 0 && value < 10
  const [[name, amount] = [], ...others] = Object.entries<unknown>(Object(value))
  if (others.length > 0 || typeof amount !== 'number' || !Number.isFinite(amount)) return false
  return name === 'left' ? amount >= 0 : name === 'used' && amount > 0
}

export function checkDatabase(db: Database): void {
  checkOption(typeof db?.execute === 'function', 'db must be a Drizzle Postgres database or transaction.')
  checkOption(!lacksClient(db), 'db has no client: drizzle was called with undefined.')
}

/** Whether `drizzle` was called without a client. Drivers notice it only at their first statement. */
function lacksClient({ _: inner }: Database): boolean {
  const session = inner?.session
  if (session === undefined || !('client' in session)) return false
  return session.client === undefined || session.client === null
}

export function checkTablesGiven(tables: RateLimitTables): void {
  checkOption(
    isTable(tables?.ephemeral) && isTable(tables?.durable),
    'tables must come from rateLimitTables.',
  )
}

function isTable(table: unknown): boolean {
  // Another table has no such column. Drizzle's `is` fails on an object without a prototype.
  return typeof table === 'object' && table !== null && 'prevCount' in table && is(table, PgTable)
}
