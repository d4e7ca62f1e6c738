import { block, blocks } from 'drizzle-ratelimit/lockout'
import { describe, expect, test } from 'vitest'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

// An error may say that nothing was changed only if that is true of the whole call.

const database = useDatabase()

/** A database that can be reached for this many statements. */
function reachedFor(statements: number) {
  let left = statements
  return watch(database.db, () => {
    if (left-- <= 0) throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
  }).db
}

const bucket = Ratelimit.tokenBucket(1, '1h', 10, { initialTokens: 3 })
const common = { limiter: bucket, prefix: 'after change', cleanupProbability: 0, use: [blocks()] } as const

describe('a block', () => {
  const call = (ratelimit: Ratelimit) => block(ratelimit, 'key', '1h')

  test('fails before its first statement: UNREACHABLE', async () => {
    const ratelimit = new Ratelimit({ ...common, db: reachedFor(0) })
    await expect(call(ratelimit)).rejects.toMatchObject({ code: 'UNREACHABLE' })
  })

  test('fails after a statement that has changed something: OUTCOME_UNKNOWN', async () => {
    await call(new Ratelimit({ ...common, db: database.db }))
    const ratelimit = new Ratelimit({ ...common, db: reachedFor(1) })
    const cause = expect.objectContaining({ code: 'UNREACHABLE' })
    await expect(call(ratelimit)).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN', cause })
  })
})

test.each([0, 1, 2, 3, 4, 5, 6])(
  'a reset of a bucket that does not start full, of which %s statements are sent, changes nothing or is done',
  async (statements) => {
    const own = { ...common, prefix: `reset after ${statements}` }
    const ratelimit = new Ratelimit({ ...own, db: database.db })
    await ratelimit.resetUsedTokens('key')
    await ratelimit.limit('key', { rate: 2 })
    const reset = new Ratelimit({ ...own, db: reachedFor(statements) }).resetUsedTokens('key')
    const isDone = await reset.then(
      () => true,
      () => false,
    )
    expect(await ratelimit.getRemaining('key')).toMatchObject({ remaining: isDone ? 10 : 8 })
  },
)
