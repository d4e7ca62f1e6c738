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
const common = { limiter: bucket, prefix: 'after change', cleanupProbability: 0, blocks: true } as const

const calls = {
  'a reset of a bucket that does not start full': (ratelimit: Ratelimit) => ratelimit.resetUsedTokens('key'),
  'a block': (ratelimit: Ratelimit) => ratelimit.block('key', '1h'),
}

describe.each(Object.entries(calls))('%s', (_, call) => {
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
