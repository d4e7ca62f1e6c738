import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import type pg from 'pg'
import { rateLimitEphemeral } from '../../schema/index.ts'
import { paramsOf } from '../../src/database/rendered.ts'
import { Ratelimit } from '../../src/index.ts'
import { checkStatement } from '../../src/statements/check.ts'
import { bindOf } from '../../src/statements/input.ts'
import { makeKeys, PLENTY } from '../contenders/contender.ts'
import { allAdmitted, anyOf, keyNumber, keyNumbers, measure } from '../measure.ts'
import { type Entry, interleave } from '../rounds.ts'
import { type Load, withDatabase } from './load.ts'

const KEYS = 1_000
const BATCH = 32
const PREFIX = 'tricks'
const AS_SHIPPED = 'as shipped'
const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
const source = { table: rateLimitEphemeral, algorithm: limiter.algorithm, commit: 'as the session' } as const
const one = checkStatement({ ...source, form: 'one' })
const many = checkStatement({ ...source, form: 'many' })

/** What each trick of the package gains: the same check without it. */
export const TRICKS: readonly Load[] = [
  load('tricks-1-caller', 'tricks, 1 caller', 1, (pool) => {
    const db = drizzle({ client: pool })
    const text = one.sql
    return {
      [AS_SHIPPED]: ratelimitOn(pool),
      'not named': ratelimitOn(pool, false),
      'sent past Drizzle, not named': (key) => pool.query(text, paramsOf(one, valuesOf(key))),
      'the same, links not materialized': (key) =>
        pool.query(text.replaceAll(' as materialized (', ' as ('), paramsOf(one, valuesOf(key))),
      'not named, put together from pieces at each call': (key) => db.execute(inPieces(text, key)),
      'not named, built and rendered at each call': (key) => {
        const built = checkStatement({ ...source, form: 'one' })
        return pool.query(built.sql, paramsOf(built, valuesOf(key)))
      },
    }
  }),
  load('tricks-64-callers', 'tricks, 64 callers, 1,000 keys', 64, (pool) => {
    const alone = Array.from({ length: 64 }, () => ratelimitOn(pool))
    let next = 0
    return {
      [AS_SHIPPED]: ratelimitOn(pool),
      'not named': ratelimitOn(pool, false),
      'nothing shares a statement': (key) => alone[next++ % alone.length]?.(key) ?? Promise.reject(),
    }
  }),
  load('tricks-batch', `tricks, statements of ${BATCH} keys, 1 caller`, 1, (pool) => {
    const json = many.sql.replace(
      /unnest\((\$\d+)::text::text\[\], (\$\d+)\S+, (\$\d+)\S+\) with ordinality as call \(.*?\)/,
      `(select * from rows from (jsonb_to_recordset($1::text::jsonb) as (key text, rate float8, calls float8)) with ordinality
        as call (key, rate, calls, place) where $2::text is not null and $3::text is not null) as call`,
    )
    const prepared = (name: string, text: string, batch: (keys: string[]) => unknown[]) => (key: string) =>
      pool.query({ name, text, values: batch(neighboursOf(key)) })
    return {
      [AS_SHIPPED]: prepared('arrays', many.sql, (keys) =>
        paramsOf(many, bindOf('many', keys.map(valuesOf))),
      ),
      'as JSON': prepared('json', json, (keys) => {
        const calls = keys.map((key) => ({ key, rate: 1, calls: 1 }))
        return paramsOf(many, { ...bindOf('many', keys.map(valuesOf)), key: JSON.stringify(calls) })
      }),
    }
  }),
]

type Check = (key: string) => Promise<unknown>

function load(
  name: string,
  title: string,
  callers: number,
  checksOn: (pool: pg.Pool) => Record<string, Check>,
): Load {
  return {
    name,
    title,
    run: (bench) =>
      withDatabase(bench, async ({ pool }) => {
        const { rounds, roundMs, warmUpMs } = bench.settings
        const checks = Object.entries(checksOn(pool))
        bench.progress.expect(rounds * checks.length)
        await makeKeys({ check: async (key) => !!(await ratelimitOn(pool)(key)) }, keyNumbers(KEYS))
        const entries = checks.map(([name, check]): Entry => {
          const work = { check: async (key: string) => !!(await check(key)), key: anyOf(KEYS), callers }
          return {
            name,
            turn: async () => {
              await measure({ ...work, ms: warmUpMs })
              return allAdmitted(await measure({ ...work, ms: roundMs }))
            },
          }
        })
        const measured = await interleave(entries, rounds, bench.progress)
        return { measured, baseline: AS_SHIPPED, comparedBy: callers === 1 ? 'p50Ms' : 'perSecond' }
      }),
  }
}

function ratelimitOn(pool: pg.Pool, preparedStatements?: boolean): Check {
  const named = preparedStatements === undefined ? {} : { preparedStatements }
  const ratelimit = new Ratelimit({ db: drizzle({ client: pool }), limiter, prefix: PREFIX, ...named })
  return async (key) => (await ratelimit.limit(key)).success
}

function valuesOf(key: string) {
  const call = { prefix: PREFIX, key, clock: null, rate: 1, calls: 1, force: 0, paidFrom: null }
  return { ...call, ...limiter.params }
}

/** As many keys as a statement has, from this one on. */
function neighboursOf(key: string): string[] {
  const first = Number(key.replace(/\D+/, ''))
  return Array.from({ length: BATCH }, (_, i) => keyNumber((first + i) % KEYS)).sort()
}

/** As Drizzle puts a query together: the text between the parameters, and the parameters. */
function inPieces(text: string, key: string) {
  const params = paramsOf(one, valuesOf(key))
  const pieces = text.split(/(\$\d+)/).map((piece) => {
    const number = /^\$(\d+)$/.exec(piece)?.[1]
    return number ? sql`${params[Number(number) - 1]}` : sql.raw(piece)
  })
  return sql.join(pieces)
}
