import { expect, test } from 'vitest'
import { rateLimitEphemeral } from '../../schema/index.ts'
import { Ratelimit } from '../../src/index.ts'
import { connectionTo, newSending } from '../../src/kernel/database/connection.ts'
import { AloneDecider } from '../../src/kernel/queue/decide.ts'
import type { CallGroup, Pending } from '../../src/kernel/queue/queue.ts'
import { plainTable } from '../../src/kernel/store/plain-table.ts'
import { useDatabase } from '../support/databases.ts'
import { requestOf } from '../support/requests.ts'
import { stored } from '../support/stored.ts'

// This needs the class: the calls of the package take every decision, and this is about one that throws.

const database = useDatabase()
const limiter = stored(Ratelimit.fixedWindow(10, '1h'))

function deciderOf(prefix: string): AloneDecider {
  return new AloneDecider(
    {
      connection: connectionTo(database.db, { wish: undefined, refused: false, renewed: 0 }),
      table: plainTable(rateLimitEphemeral),
      namespace: { prefix, clock: undefined },
      commit: 'as the session',
    },
    (work) => work(),
  )
}

/** Groups of calls with these names, which note their answers. The broken one cannot be fulfilled. */
function groupsOf(...keys: readonly (readonly string[])[]) {
  const told: string[] = []
  const groups = keys.map((names, i): CallGroup => {
    const request = requestOf({ key: `key ${i}`, limiter })
    const calls = names.map((name): Pending => {
      const fulfil = () => {
        if (name === 'broken') throw new TypeError('no such thing')
        told.push(`${name} fulfilled`)
      }
      const fail: Pending['fail'] = ({ code, cause }) => void told.push(`${name} ${code} ${cause}`)
      return { request, isOver: false, batch: undefined, isContended: false, hold: () => {}, fulfil, fail }
    })
    return { request, calls }
  })
  return { groups, told }
}

const WORK = () => ({ sending: newSending() })

const FAILED = 'broken OUTCOME_UNKNOWN TypeError: no such thing'

test('a call that throws on its decision fails alone among those that share its statement', async () => {
  const { groups, told } = groupsOf(['before'], ['equal', 'broken', 'equal too'], ['after'])
  const done: CallGroup[] = []
  const held = await deciderOf('together').decideTogether(groups, (group) => done.push(group), WORK())
  expect(told).toEqual([
    'before fulfilled',
    'equal fulfilled',
    FAILED,
    'equal too fulfilled',
    'after fulfilled',
  ])
  expect(done).toEqual(groups)
  expect(held).toEqual([])
})

test('a call that throws on its decision fails alone among equal calls', async () => {
  const { groups, told } = groupsOf(['equal', 'broken', 'equal too'])
  await deciderOf('alone').decideAlone(groups[0] as CallGroup, WORK())
  expect(told).toEqual(['equal fulfilled', FAILED, 'equal too fulfilled'])
})
