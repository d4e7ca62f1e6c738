import { describe, expect, test } from 'vitest'
import { callOn, calls, callsOfPeriods, limiters } from './calls.ts'
import { CITUS_PLAIN, CITUS_URL, CITUS_WORKERS, type Layout, useLayout } from './layout.ts'
import { ownCalls, takeSlots } from './own-calls.ts'

// Every call gives the answer that it gives on a plain server.

const layouts: readonly Layout[] = [2, 8, 32, 'one shard']
const [worker] = CITUS_WORKERS

describe.skipIf(!CITUS_URL || !CITUS_PLAIN)('needs CITUS_URL and CITUS_PLAIN: every call', () => {
  const plain = useLayout('plain')
  const expected = plain.at
  describe.each(layouts)('with the layout %s', (layout) => {
    const laid = useLayout(layout)
    const servers: Record<string, string | undefined> = { 'by the coordinator': undefined }
    if (worker && layout === 8) servers['by a worker'] = worker
    describe.each(Object.entries(servers))('%s', (_, url) => {
      for (const [algorithm, limiter] of Object.entries(limiters)) {
        const those = {
          ...calls,
          ...(algorithm.endsWith('w') && !algorithm.startsWith('s') ? callsOfPeriods : {}),
        }
        test(algorithm, async () => {
          const [db, other] = [laid.at(url), expected()]
          for (const [name, run] of Object.entries(those)) {
            const prefix = `${algorithm} ${name}${url ? ' worker' : ''}`
            const right = await run(callOn(plain, other, limiter, `${prefix} ${layout}`))
            expect([name, await run(callOn(laid, db, limiter, prefix))]).toEqual([name, right])
          }
        })
      }
      test.each(Object.entries(ownCalls))('%s', async (name, run) => {
        const prefix = `${name}${url ? ' worker' : ''}`
        const right = await run({ laid: plain, db: expected(), prefix: `${prefix} ${layout}` })
        expect(await run({ laid, db: laid.at(url), prefix })).toEqual(right)
      })
      test('slots of work, which need a table on one shard', async () => {
        const seen = await takeSlots({ laid, db: laid.at(url), prefix: `slots${url ? ' worker' : ''}` })
        const refused = ['DATABASE', '0A000']
        expect(seen).toEqual(laid.use.length > 0 ? [refused, refused, refused] : [true, true, false])
      })
    })
  })
})
