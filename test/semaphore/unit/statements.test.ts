import { expect, test } from 'vitest'
import { rateLimitDurable, rateLimitEphemeral } from '../../../schema/index.ts'
import { acquireStatement } from '../../../src/semaphore/sql/acquire.ts'
import { holdersStatement } from '../../../src/semaphore/sql/holders.ts'
import { leaseStatement } from '../../../src/semaphore/sql/lease.ts'
import { printed, usedNames } from '../../support/statement-text.ts'

// What a semaphore and its leases send. test/unit/statements.test.ts has the statements of the limiters.

const table = rateLimitEphemeral
const plain = { table, injectedClock: false, commit: 'as the session', guarded: false } as const
const durable = { table: rateLimitDurable, injectedClock: true, commit: 'async', guarded: true } as const

const statements = {
  acquire: acquireStatement({ ...plain, joined: false }),
  'acquire-joined': acquireStatement({ ...plain, joined: true }),
  holders: holdersStatement(table, false),
  'acquire-durable': acquireStatement({ ...durable, joined: false }),
  extend: leaseStatement({ ...plain, action: 'extend', waits: false }),
  'release-durable': leaseStatement({ ...durable, action: 'release', waits: true }),
}

test.each(['acquire', 'extend', 'holders'] as const)('the SQL of %s is as reviewed', async (name) => {
  await expect(printed(statements[name])).toMatchFileSnapshot(`./snapshots/${name}.sql`)
})

test.each(Object.entries(statements))('each parameter of %s has a name and is used', (_, statement) => {
  expect(usedNames(statement)).toEqual(statement.names)
})
