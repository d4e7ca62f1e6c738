import type { TestDatabase } from './databases.ts'

/** The microseconds that Postgres takes for the time, in place of its own clock. */
const CLOCK = `
  drop schema if exists clocks cascade;
  create schema clocks;
  create table clocks.at as select 0::bigint as us;
  create function clocks.clock_timestamp() returns timestamptz volatile language sql as
    'select timestamptz ''epoch'' + us * interval ''1 microsecond'' from clocks.at'`

/** For sessions that read this clock. Functions of Postgres' own come first unless it is said otherwise. */
export const CLOCK_PATH = 'clocks, pg_catalog, public'

/** Makes a clock for sessions with `CLOCK_PATH`. It stands still. Returns what sets it. */
export async function databaseClock(
  database: TestDatabase,
): Promise<(ms: number, us?: number) => Promise<unknown>> {
  await database.script(CLOCK)
  return (ms, us = 0) => database.rows('update clocks.at set us = $1', [ms * 1000 + us])
}
