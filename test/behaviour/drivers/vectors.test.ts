import { describe, expect, test } from 'vitest'
import { type Allowed, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { TestClock } from '../../support/clock.ts'
import { hasServer, useDatabase } from '../../support/databases.ts'
import { planOf, type VectorLimiter } from '../../support/limits.ts'
import vectorsFile from '../../vectors.json' with { type: 'json' }

// Slow: every vector in every way, call by call.

interface Step {
  readonly at: number
  readonly op: string
  readonly rate?: number
  readonly times?: number
  readonly expect?: Record<string, unknown>
}

const vectors: readonly { name: string; limiter: VectorLimiter; steps: readonly Step[] }[] =
  vectorsFile.vectors
const database = useDatabase()

type Way = (ratelimit: Ratelimit, key: string, rate: number, times: number) => Promise<unknown>

/** Ways to make the same calls. All must give the same answers. */
const ways = {
  'one after the other': async (ratelimit, key, rate, times) => {
    let answer: unknown
    for (let i = 0; i < times; i++) answer = await ratelimit.limit(key, { rate })
    return answer
  },
  'all at once': async (ratelimit, key, rate, times) => {
    const answers = await Promise.all(Array.from({ length: times }, () => ratelimit.limit(key, { rate })))
    return answers.at(-1)
  },
  'with other keys in the same statement': async (ratelimit, key, rate, times) => {
    const keys = [`${key} before`, key, `${key} after`]
    let answers: unknown[] = []
    for (let i = 0; i < times; i++) {
      answers = await Promise.all(keys.map((each) => ratelimit.limit(each, { rate })))
    }
    expect(answers[0]).toEqual(answers[1])
    expect(answers[2]).toEqual(answers[1])
    return answers[1]
  },
  'in a transaction': async (ratelimit, key, rate, times) =>
    database.db.transaction(async (tx) => {
      let answer: unknown
      for (let i = 0; i < times; i++) answer = await ratelimit.limit(key, { rate, tx })
      return answer
    }),
} satisfies Record<string, Way>

const plain = { durable: false, cleanupProbability: 0 } as const
const durable = { durable: true, cleanupProbability: 1 } as const
const direct = { ...plain, coalesce: false } as const

type Chosen = readonly (readonly [keyof typeof ways, Partial<RatelimitConfig>])[]

/** The same statements, each on the other table. PGlite takes three times as long for them. */
const ON_SERVERS: Chosen = [
  ['one after the other', plain],
  ['all at once', durable],
]

/** The same everywhere: statements of one key, which the other tests send to every driver. */
const ON_PGLITE: Chosen = [['all at once', direct]]

const CHOSEN: Chosen = [
  ['one after the other', durable],
  ['all at once', plain],
  ['with other keys in the same statement', plain],
  ['in a transaction', durable],
  ...(hasServer() ? ON_SERVERS : ON_PGLITE),
]

describe.each(CHOSEN)('the shared vectors, %s', (way, options) => {
  const limit: Way = ways[way]
  describe(JSON.stringify(options), () => {
    test.each(vectors)('$name', async ({ name, limiter, steps }) => {
      const start = Date.UTC(2026, 0, 31, 10, 15, 0, 7)
      const clock = new TestClock()
      const ratelimit = new Ratelimit({
        db: database.db,
        limiter: planOf(limiter).limiter,
        // Each vector has its own prefix, because its clock starts again, and a sweep goes by the clock of the
        // limiter that started it.
        prefix: `${way} ${JSON.stringify(options)} ${name}`,
        clock: clock.now,
        ...options,
      } as RatelimitConfig)
      for (const { at, op, rate = 1, times = 1, expect: expected } of steps) {
        clock.ms = start + at
        if (op === 'reset') {
          for (const key of [name, `${name} before`, `${name} after`]) await ratelimit.resetUsedTokens(key)
        } else if (op === 'remaining') {
          expect(fromStart(await ratelimit.getRemaining(name), start)).toMatchObject(readNever(expected))
        } else
          expect(fromStart(await limit(ratelimit, name, rate, times), start)).toMatchObject(
            readNever(expected),
          )
      }
    })
  })
})

/** The vectors do not tell ended periods, nor what was given back. */
function fromStart(answer: unknown, start: number): unknown {
  const { reset, ended: _, returned: __, ...rest } = answer as Allowed
  return { ...rest, reset: reset - start }
}

function readNever(expected: Record<string, unknown> = {}): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(expected).map(([name, value]) => [
      name,
      value === 'never' ? Number.POSITIVE_INFINITY : value,
    ]),
  )
}
