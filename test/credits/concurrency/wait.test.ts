import { expect, inject, test, vi } from 'vitest'
import { Credits, type CreditsConfig } from '../../../src/credits/index.ts'
import { type Db, useDatabase } from '../../support/databases.ts'
import { untilWaiting } from '../../support/locks.ts'
import { fakeTime, useFakeTime } from '../../support/timers.ts'

// The timeout of `blockUntilReady` also ends the first check, and what that charges later is given back.

const database = useDatabase()
useFakeTime()

// postgres.js sends nothing of a call before Postgres has parsed its statement, which the lock prevents.
const sends = inject('driver') === 'node-postgres'

interface Common extends Pick<CreditsConfig, 'prefix' | 'cleanupProbability'> {
  readonly db: Db
}

const KINDS = {
  undated: (common: Common) => {
    const credits = new Credits(common)
    return { credits, first: () => credits.grant('org', 10) }
  },
  dated: (common: Common) => {
    const credits = new Credits({ ...common, dated: true })
    return { credits, first: () => credits.grant('org', 10, { id: 'a' }) }
  },
  'dated, with onError': (common: Common) => {
    const credits = new Credits({ ...common, dated: true, onError: 'allow' })
    return { credits, first: () => credits.grant('org', 10, { id: 'a' }) }
  },
}

test.runIf(sends).each(Object.entries(KINDS))('a check that takes too long: %s', async (kind, made) => {
  const { db } = database.connect(4)
  const { credits, first } = made({ db, prefix: kind, cleanupProbability: 0 })
  await first()
  const blocker = await database.client()
  await blocker.query('begin')
  try {
    await blocker.query('lock table rate_limit_durable')
    fakeTime()
    const waiting = credits.blockUntilReady('org', '100ms', { rate: 4 })
    const ended =
      kind === 'dated, with onError'
        ? expect(waiting).resolves.toMatchObject({ success: false, degraded: true })
        : expect(waiting).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    await untilWaiting(database)
    await vi.advanceTimersByTimeAsync(100)
    await ended
  } finally {
    vi.useRealTimers()
    await blocker.query('rollback')
  }
  await vi.waitUntil(async () => (await credits.getRemaining('org')).used === 0, { timeout: 10_000 })
})
