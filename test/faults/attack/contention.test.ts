import { describe, expect, test } from 'vitest'
import {
  type LimitResult,
  limitAll,
  Ratelimit,
  type RatelimitConfig,
  type RatelimitError,
} from '../../../src/index.ts'
import { tell } from '../../support/happened.ts'
import { holdRows } from '../../support/locks.ts'
import { usePool } from './pool.ts'

// A client floods its own key, or holds its row. It gets its limit and nothing more, and the others are served.

const opened = usePool()

const five = Ratelimit.fixedWindow(5, '1h')
let prefixes = 0

/** A limiter as docs/outages.md recommends it for limits that protect. */
function protective(config: Partial<RatelimitConfig> = {}): Ratelimit {
  return new Ratelimit({
    ...{ db: opened.db, limiter: five, prefix: `attack ${++prefixes}` },
    // A database that answers later, as that of a busy machine may, would be away.
    ...{ timeout: 3_000, onError: 'allow', cleanupProbability: 0 },
    ...config,
  } as RatelimitConfig)
}

/** A limiter without a bound on its calls, which throws errors. */
function patient(limiter = five, prefix = `attack ${++prefixes}`): Ratelimit {
  return new Ratelimit({ db: opened.db, limiter, prefix, cleanupProbability: 0, timeout: false })
}

/** Counts the answers for the end of the run. */
async function count(kind: string, calls: readonly Promise<{ readonly success: boolean }>[]) {
  const settled = await Promise.allSettled(calls)
  const passed = settled.filter((each) => each.status === 'fulfilled' && each.value.success).length
  tell(kind, 'calls', calls.length)
  tell(kind, 'passed', passed)
  tell(kind, 'refused', calls.length - passed)
  return passed
}

const times = <T>(count: number, call: (i: number) => T): T[] =>
  Array.from({ length: count }, (_, i) => call(i))

/** A call whose error is looked at later. */
function begun<T>(call: Promise<T>): Promise<T> {
  call.catch(() => {})
  return call
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

/** Calls of others, one after the other, until `until` ends: how long they took, and how many failed. */
async function victims(until: Promise<unknown>, call: (i: number) => Promise<LimitResult>) {
  let goesOn = true
  const end = until.finally(() => {
    goesOn = false
  })
  const tookMs: number[] = []
  const codes: string[] = []
  for (let i = 0; goesOn; i++) {
    const before = performance.now()
    const answer = await call(i).catch(({ code }: RatelimitError) => void codes.push(code))
    tookMs.push(performance.now() - before)
    if (answer?.success === false || answer?.degraded) codes.push('degraded')
    await pause(2)
  }
  await end
  tookMs.sort((one, other) => one - other)
  const at = (share: number) => tookMs[Math.floor(tookMs.length * share)] ?? 0
  return { calls: tookMs.length, codes, p50: at(0.5), p99: at(0.99) }
}

function tellVictims(kind: string, { calls, codes, p50, p99 }: Awaited<ReturnType<typeof victims>>): void {
  tell(kind, "others' calls", calls)
  for (const code of codes) tell(kind, `others' ${code}`)
  tell(kind, 'µs at their median', Math.round(p50 * 1000))
  tell(kind, 'µs at their 99th percentile', Math.round(p99 * 1000))
}

describe('a held row, and the calls that go on coming for it', () => {
  test.each(['throw', 'allow'] as const)('cause no outage for others: %s', async (onError) => {
    const api = protective({ onError, timeout: 2_000 } as Partial<RatelimitConfig>)
    // However slow the machine is.
    const setUp = patient(five, api.prefix)
    await setUp.limit('own')
    await setUp.limit('used up', { rate: 5 })
    const holder = await holdRows(opened, api.prefix, ['own'])
    const flood = (async () => {
      const calls: Promise<{ success: boolean }>[] = []
      for (let i = 0; i < 150; i++) {
        calls.push(begun(api.limit('own', { rate: 1 + (i % 3) })))
        await pause(10)
      }
      return count(`next to a held row, own calls, ${onError}`, calls)
    })()
    let letPass = 0
    const told = await victims(flood, async (i) => {
      const usedUp = await api.limit('used up')
      if (usedUp.success) letPass++
      return api.limit(`other ${i}`)
    })
    tellVictims(`next to a held row, ${onError}`, told)
    await holder.query('rollback')
    expect(await flood).toBe(0)
    expect(letPass).toBe(0)
    expect(told.codes).not.toContain('UNREACHABLE')
  })

  test('never pass, with 200 at once', async () => {
    const api = protective()
    await patient(five, api.prefix).limit('own')
    const holder = await holdRows(opened, api.prefix, ['own'])
    expect(
      await count(
        '200 calls for a held row',
        times(200, () => api.limit('own')),
      ),
    ).toBe(0)
    await holder.query('rollback')
  })

  test('leave room for the others, with 11,000 calls', async () => {
    const api = patient()
    await api.limit('own')
    const holder = await holdRows(opened, api.prefix, ['own'])
    const flood = count(
      '11,000 for a held row',
      times(11_000, (i) => api.limit('own', { rate: 1 + (i % 2) })),
    )
    const told = await victims(pause(3_000), (i) => api.limit(`other ${i}`))
    tellVictims('next to 11,000 for a held row', told)
    await holder.query('rollback')
    expect(await flood).toBeLessThanOrEqual(5)
    expect(told.codes).toEqual([])
  })
})

describe("a flood of one key never passes its limit, even with onError: 'allow'", () => {
  const floods: Record<string, (api: Ratelimit) => Promise<{ readonly success: boolean }>[]> = {
    '5,000 with distinct rates': (api) => times(5_000, (i) => api.limit('own', { rate: 1 + i })),
    '12,000 equal ones': (api) => times(12_000, () => api.limit('own')),
    '1,500 limitAll': (api) => times(1_500, () => limitAll([{ ratelimit: api, key: 'own' }])),
  }
  test.each(Object.entries(floods))('%s', async (kind, flood) => {
    const api = protective()
    expect(await count(kind, flood(api))).toBeLessThanOrEqual(5)
    expect((await patient(five, api.prefix).getRemaining('own')).used).toBeLessThanOrEqual(5)
  })

  test('waves of limitAll', async () => {
    const api = protective()
    const many = Ratelimit.fixedWindow(1_000, '1h')
    const other = protective({ limiter: many })
    const calls: Promise<{ readonly success: boolean }>[] = []
    for (let wave = 0; wave < 10; wave++) {
      const requests = [api, other].map((ratelimit) => ({ ratelimit, key: 'own' }))
      calls.push(...times(75, () => begun(limitAll(requests))))
      await pause(40)
    }
    expect(await count('750 limitAll in waves', calls)).toBeLessThanOrEqual(5)
    expect((await patient(many, other.prefix).getRemaining('own')).used).toBeLessThanOrEqual(5)
  })
})

test('a flood of limitAll on one key leaves the pool to the others', async () => {
  const api = patient()
  const quota = patient(Ratelimit.fixedWindow(1_000_000, '1h'))
  const calm = await victims(pause(500), (i) => api.limit(`other ${i}`))
  tellVictims('without a flood', calm)
  let goesOn = true
  let most = 0
  const flood = Promise.all(
    times(64, async () => {
      while (goesOn) {
        await limitAll([{ ratelimit: quota, key: 'own' }]).catch(() => {})
        tell('a flood of limitAll', 'calls')
      }
    }),
  )
  const told = await victims(pause(2_000), async (i) => {
    most = Math.max(most, opened.pool.totalCount - opened.pool.idleCount)
    return api.limit(`other ${i}`)
  })
  goesOn = false
  await flood
  // One for the flood, and one for the others.
  expect(most).toBeLessThanOrEqual(2)
  tellVictims('next to a flood of limitAll', told)
  expect(told.codes).toEqual([])
})
