import type { Profiler } from 'node:inspector'
import { Session } from 'node:inspector/promises'
import { expect, test } from 'vitest'
import { Ratelimit } from '../../src/index.ts'
import { hasServer, useDatabase } from '../support/databases.ts'

const database = useDatabase()

/** Runs the work, and gives the files of the package in which it called a function. */
async function filesTouched(work: () => Promise<unknown>): Promise<string[]> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  await session.post('Profiler.takePreciseCoverage')
  await work()
  const { result } = await session.post('Profiler.takePreciseCoverage')
  session.disconnect()
  // What a module exports is read by functions without a name, which the test runner adds.
  const called = ({ functionName, ranges }: Profiler.FunctionCoverage) =>
    functionName !== '' && ranges.some(({ count }) => count > 0)
  return result
    .filter(({ functions }) => functions.some(called))
    .flatMap(({ url }) => /\/(src\/[^?]+\.ts)/.exec(url)?.[1] ?? [])
    .toSorted()
}

test('a warm check goes through eighteen files, and four more on a driver that keeps no statements', async () => {
  const limiter = Ratelimit.tokenBucket(5, '10s', 20)
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'warm', cleanupProbability: 0 })
  for (let i = 0; i < 3; i++) await ratelimit.limit('key')
  const files = await filesTouched(() => ratelimit.limit('key'))
  expect(files).toEqual([
    'src/algorithms/limiter.ts',
    'src/algorithms/search.ts',
    'src/algorithms/token-bucket.ts',
    'src/check/answer.ts',
    'src/check/checker.ts',
    'src/check/refusal.ts',
    // Connections of PGlite keep no statements.
    ...(hasServer() ? [] : ['src/database/clients.ts', 'src/database/database.ts']),
    'src/database/rows.ts',
    'src/database/run.ts',
    ...(hasServer() ? [] : ['src/database/session.ts', 'src/database/written-query.ts']),
    'src/options.ts',
    'src/ratelimit.ts',
    'src/runtime/ask.ts',
    'src/runtime/call.ts',
    'src/runtime/coalescer.ts',
    'src/runtime/decide.ts',
    'src/runtime/long-waits.ts',
    'src/runtime/places.ts',
    'src/runtime/room.ts',
    'src/validate.ts',
  ])
})
