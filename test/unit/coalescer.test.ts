import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { calendarWindow } from '../../src/calendar/index.ts'
import { Ratelimit } from '../../src/index.ts'
import type { RatelimitError } from '../../src/kernel/errors.ts'
import { Coalescer } from '../../src/kernel/queue/coalescer.ts'
import type { CallGroup, Decider, DeciderWork, Pending } from '../../src/kernel/queue/queue.ts'
import { type Decision, kindOf, type Request, sameRequest } from '../../src/kernel/store/call.ts'
import { keysNamed } from '../support/keys.ts'
import { requestOf } from '../support/requests.ts'
import { stored } from '../support/stored.ts'
import { fakeTime, ownTimers, useFakeTime } from '../support/timers.ts'

useFakeTime()

// This needs the class: it is about statements that have no answer yet, and about which calls are in which of
// them. A decider that answers when the test says so stands in for the database. What callers see is tested in
// behaviour/drivers/limiting, behaviour/process/outages and concurrency/held.

const limiter = stored(Ratelimit.fixedWindow(1000, '1h'))
const month = stored(calendarWindow(1000, 'month'))

/** A statement that was sent and has no answer yet. */
interface Sent {
  readonly kind: 'together' | 'alone'
  readonly groups: readonly CallGroup[]
  /** What it was for: each key with the number of its equal calls. */
  readonly asked: string
  /** Answers one of its keys; the others have to wait. */
  decide(key: string): void
  /** Answers the rest of it; the groups of the given keys are held. */
  answer(held?: readonly string[]): Promise<void>
}

/** A decider whose statements are answered when the test says so. */
class ManualDecider implements Decider {
  readonly kindOf = kindOf
  readonly sameRequest = sameRequest
  readonly sent: Sent[] = []

  decideTogether(
    groups: readonly CallGroup[],
    decided: (group: CallGroup) => void,
    { sending }: DeciderWork,
  ): Promise<readonly CallGroup[]> {
    sending.isSent = true
    return new Promise((resolve) => {
      const left = new Set(groups)
      const decide = (group: CallGroup) => {
        left.delete(group)
        settle(group)
        decided(group)
      }
      const decideKey = (key: string) => {
        for (const group of left) if (group.request.key === key) decide(group)
      }
      this.#send('together', groups, decideKey, (held) => {
        for (const group of left) if (!held.includes(group.request.key)) decide(group)
        resolve([...left])
      })
    })
  }

  decideAlone(group: CallGroup, { sending }: DeciderWork): Promise<void> {
    sending.isSent = true
    return new Promise((resolve) => {
      const decide = () => {
        settle(group)
        resolve()
      }
      this.#send('alone', [group], decide, decide)
    })
  }

  #send(
    kind: Sent['kind'],
    groups: readonly CallGroup[],
    decide: (key: string) => void,
    settle: (held: readonly string[]) => void,
  ): void {
    this.sent.push({
      ...{ kind, groups, decide },
      asked: groups.map(({ request, calls }) => `${request.key} x${calls.length}`).join(),
      answer: async (held = []) => {
        settle(held)
        await turn()
      },
    })
  }
}

function settle({ calls }: CallGroup): void {
  for (const [place, call] of calls.entries()) call.fulfil(DECISION, place)
}

const DECISION: Decision = {
  now: 0,
  granted: Number.POSITIVE_INFINITY,
  state: {} as never,
  params: limiter.params,
}

/** On a busy machine, a statement of the test may take longer than calls wait for it. */
function stopTime(): void {
  vi.spyOn(performance, 'now').mockReturnValue(0)
}

/** The microtasks of this turn have run after it. */
function turn(): Promise<void> {
  return new Promise(setImmediate)
}

function setUp(connections = 2) {
  const decider = new ManualDecider()
  const coalescer = new Coalescer(decider, connections)
  /** Which calls were answered, in that order. */
  const answered: string[] = []
  const errors: RatelimitError[] = []
  let calls = 0
  const add = (key: string, asking: Partial<Request> = {}) => {
    const name = `${key} ${++calls}`
    const request = requestOf({ key, limiter, ...asking })
    const call: Pending = {
      request,
      isOver: false,
      batch: undefined,
      isContended: false,
      hold: () => {
        call.isContended = true
      },
      fulfil: () => void answered.push(name),
      fail: (error) => void errors.push(error),
    }
    coalescer.add(call)
    return call
  }
  /** So many calls of several keys, none of which has more than its share. */
  const fill = (calls: number) => {
    for (let i = 0; i < calls; i++) add(`many ${i % 10}`)
  }
  const asked = () => decider.sent.map((sent) => sent.asked)
  return { decider, coalescer, sent: decider.sent, add, fill, asked, answered, errors }
}

describe('calls of one turn', () => {
  test('share a statement, and equal calls of a key share a place in it', async () => {
    const { add, asked, answered, sent } = setUp()
    for (const key of ['a', 'b', 'a', 'a']) add(key)
    expect(asked()).toEqual([])
    await turn()
    expect(asked()).toEqual(['a x3,b x1'])
    await sent[0]?.answer()
    expect(answered).toEqual(['a 1', 'a 3', 'a 4', 'b 2'])
  })

  test.each<[string, Partial<Request>, Partial<Request>]>([
    ['of another rate', {}, { rate: 2 }],
    ['of another limit', {}, { limiter: stored(Ratelimit.fixedWindow(5, '1h')) }],
    ['of another algorithm', {}, { limiter: stored(Ratelimit.slidingWindow(1000, '1h')) }],
    ['that takes less', { rate: 3 }, { rate: 3, atLeast: 1 }],
    ['with another least', { rate: 3, atLeast: 2 }, { rate: 3, atLeast: 1 }],
    ['that is an estimate', { limiter: month }, { limiter: month, reserved: 1 }],
    [
      'for another window',
      { rate: -1, purpose: 'adjust', paidWindowStart: 1 },
      { rate: -1, purpose: 'adjust', paidWindowStart: 2 },
    ],
    [
      'until another time',
      { rate: -1, purpose: 'adjust', refundableUntil: 1 },
      { rate: -1, purpose: 'adjust', refundableUntil: 2 },
    ],
  ])('one of the same key %s waits for its turn', async (_, first, second) => {
    const { add, asked, answered, sent } = setUp()
    add('a', first)
    add('a', second)
    add('a', first)
    await turn()
    expect(asked()).toEqual(['a x1'])
    await sent[0]?.answer()
    await sent[1]?.answer()
    await sent[2]?.answer()
    expect(asked()).toEqual(['a x1', 'a x1', 'a x1'])
    expect(answered).toEqual(['a 1', 'a 2', 'a 3'])
  })

  test('share a statement if their limits differ in numbers only', async () => {
    const { add, asked } = setUp(3)
    add('a')
    add('b', { limiter: stored(Ratelimit.fixedWindow(1000, '1h')) })
    add('c', { limiter: stored(Ratelimit.fixedWindow(999, '1h')) })
    add('d', { rate: 0, purpose: 'look' })
    add('e', { rate: 3 })
    add('f', { limiter: stored(Ratelimit.slidingWindow(1000, '1h')) })
    await turn()
    expect(asked()).toEqual(['a x1,b x1,c x1,e x1', 'd x1', 'f x1'])
  })

  test('share statements with calls that take less, but not with estimates', async () => {
    const { add, asked } = setUp(4)
    add('a', { limiter: month })
    add('b', { limiter: month, atLeast: 1 })
    add('c', { limiter: month, reserved: 1 })
    add('d', { limiter: month, atLeast: 1, reserved: 1 })
    add('e', { limiter: month })
    await turn()
    expect(asked()).toEqual(['a x1,b x1,e x1', 'c x1,d x1'])
  })

  test('that give back, or force, share a statement too', async () => {
    const { add, asked } = setUp(4)
    for (const key of ['a', 'b', 'c']) add(key, { rate: -1, purpose: 'adjust' })
    add('d')
    await turn()
    expect(asked()).toEqual(['a x1,b x1,c x1', 'd x1'])
  })
})

describe('a few calls that cannot share a statement with many', () => {
  beforeEach(stopTime)
  afterEach(() => void vi.restoreAllMocks())

  const many = (count: number, name: string) => Array.from({ length: count }, (_, i) => `${name}${i}`)

  const refund = { rate: -1, purpose: 'adjust' } as const

  test('wait for more of theirs while that statement is under way, but only once', async () => {
    const { add, asked, sent } = setUp(4)
    add('few', refund)
    for (const key of many(24, 'a')) add(key)
    await turn()
    expect(sent.map(({ groups }) => groups.length)).toEqual([24])
    for (const key of many(24, 'b')) add(key)
    add('more', refund)
    await turn()
    expect(asked().slice(1)).toEqual(['few x1,more x1', expect.stringContaining('b0 x1,b1 x1')])
  })

  test('wait for no more than one statement of each other kind', async () => {
    const { add, sent } = setUp(4)
    for (const key of many(2000, 'a')) add(key)
    for (const key of many(1999, 'b')) add(key, { rate: -1, purpose: 'adjust' })
    add('few', { purpose: 'look' })
    await turn()
    expect(sent.slice(0, 3).map(({ groups: [first] }) => first?.request.key)).toEqual(['a0', 'b0', 'few'])
  })

  test('are sent at once beside fewer', async () => {
    const { add, asked, sent } = setUp(4)
    for (const key of many(23, 'a')) add(key)
    add('few', refund)
    await turn()
    expect(sent.map(({ groups }) => groups.length)).toEqual([23, 1])
    expect(asked()[1]).toBe('few x1')
  })
})

describe('a few calls beside a statement that has no answer for long', () => {
  beforeEach(fakeTime)
  afterEach(() => void vi.useRealTimers())

  async function besideMany() {
    const { add, ...rest } = setUp(4)
    for (const key of keysNamed('many', 30)) add(key)
    await turn()
    const few = add('few')
    await turn()
    expect(rest.sent).toHaveLength(1)
    return { add, few, ...rest }
  }

  test('wait for it for 50 ms, and then not any more', async () => {
    const { add, asked, sent } = await besideMany()
    vi.advanceTimersByTime(49)
    await turn()
    expect(sent).toHaveLength(1)
    vi.advanceTimersByTime(1)
    expect(asked()[1]).toBe('few x1')
    expect(ownTimers()).toEqual([])
    add('later')
    add('last')
    await turn()
    expect(asked()[2]).toBe('later x1,last x1')
  })

  test('need no timer once they have given up', async () => {
    const { few, coalescer } = await besideMany()
    expect(ownTimers()).toHaveLength(1)
    coalescer.cancel(few)
    expect(ownTimers()).toEqual([])
  })
})

describe('calls that arrive while others are under way', () => {
  beforeEach(stopTime)
  afterEach(() => void vi.restoreAllMocks())

  test('of the same key wait for its statement, and then share the next', async () => {
    const { add, asked, answered, sent } = setUp()
    add('a')
    await turn()
    add('a')
    add('a')
    await turn()
    expect(asked()).toEqual(['a x1'])
    await sent[0]?.answer()
    expect(asked()).toEqual(['a x1', 'a x2'])
    await sent[1]?.answer()
    expect(answered).toEqual(['a 1', 'a 2', 'a 3'])
  })

  test('of other keys get the places that are left, and no more', async () => {
    const { add, asked, sent } = setUp(2)
    for (const key of ['a', 'b', 'c', 'd']) {
      add(key)
      await turn()
    }
    expect(asked()).toEqual(['a x1', 'b x1'])
    await sent[1]?.answer()
    expect(asked()).toEqual(['a x1', 'b x1', 'c x1,d x1'])
  })

  test('wait until they are worth a statement, compared with the keys under way', async () => {
    const { add, sent } = setUp(4)
    const addMany = (what: string, many: number) => {
      for (let i = 0; i < many; i++) add(`${what} ${i}`)
      return turn()
    }
    await addMany('first', 10)
    await addMany('second', 9)
    expect(sent).toHaveLength(1)
    await addMany('tenth', 1)
    expect(sent[1]?.groups).toHaveLength(10)
    await addMany('third', 19)
    expect(sent).toHaveLength(2)
    await sent[0]?.answer()
    // Beside ten, nineteen are worth one.
    expect(sent[2]?.groups).toHaveLength(19)
    await addMany('fourth', 23)
    expect(sent).toHaveLength(3)
    await addMany('last', 1)
    expect(sent[3]?.groups).toHaveLength(24)
  })

  test('are served first come, first served: a busy key does not come before those that wait', async () => {
    const { add, asked, sent } = setUp(1)
    add('busy')
    await turn()
    for (const key of ['busy', ...keysNamed('key', 9), 'busy']) add(key)
    await sent[0]?.answer()
    await sent[1]?.answer()
    expect(asked()[1]).toBe(
      `${keysNamed('key', 9)
        .map((key) => `${key} x1`)
        .join()},busy x2`,
    )
  })
})

describe('a burst', () => {
  test.each([
    { connections: 1, burst: 100, shares: [100] },
    { connections: 4, burst: 600, shares: [150, 150, 150, 150] },
    { connections: 3, burst: 400, shares: [134, 133, 133] },
    { connections: 4, burst: 200, shares: [100, 100] },
    { connections: 4, burst: 49, shares: [25, 24] },
    { connections: 4, burst: 47, shares: [47] },
    { connections: 4, burst: 8, shares: [8] },
    { connections: 2, burst: 1200, shares: [500, 500] },
  ])(
    'of $burst keys goes by $connections places in shares of $shares',
    async ({ connections, burst, shares }) => {
      const { add, sent } = setUp(connections)
      for (const key of keysNamed('key', burst)) add(key)
      await turn()
      expect(sent.map(({ groups }) => groups.length)).toEqual(shares)
      const asked = sent.flatMap(({ groups }) => groups.map(({ request }) => request.key))
      const sentKeys = shares.reduce((sum, share) => sum + share, 0)
      expect(asked).toEqual(keysNamed('key', sentKeys))
    },
  )
})

describe('a held key', () => {
  test('has a statement of its own, and its later calls wait for that', async () => {
    // A key counts as held for 100 ms, which a busy machine may take here.
    vi.useFakeTimers({ toFake: ['performance'] })
    const { add, asked, answered, sent } = setUp(1)
    add('held')
    add('free')
    await turn()
    add('held')
    await sent[0]?.answer(['held'])
    expect(answered).toEqual(['free 2'])
    expect(asked()).toEqual(['held x1,free x1', 'held x1'])
    expect(sent[1]?.kind).toBe('alone')
    await sent[1]?.answer()
    expect(asked().slice(2)).toEqual(['held x1'])
    expect(sent[2]?.kind).toBe('alone')
    await sent[2]?.answer()
    expect(answered).toEqual(['free 2', 'held 1', 'held 3'])
    vi.useRealTimers()
  })

  test('delays no other key: its statement needs none of their places', async () => {
    const { add, answered, sent } = setUp(1)
    add('held')
    await turn()
    await sent[0]?.answer(['held'])
    for (let round = 0; round < 20; round++) {
      for (const key of keysNamed('key', 10)) add(key)
      await turn()
      await sent.at(-1)?.answer()
      expect(answered).toHaveLength(10 * (round + 1))
    }
    expect(answered.some((name) => name.startsWith('held'))).toBe(false)
    await sent[1]?.answer()
    expect(answered.at(-1)).toBe('held 1')
  })

  test('beyond the fourth waits for another, and is served in its order', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const { add, asked, sent } = setUp(2)
    const held = keysNamed('held', 7)
    for (const key of held) add(key)
    await turn()
    await sent[0]?.answer(held)
    expect(asked().slice(1)).toEqual(held.slice(0, 4).map((key) => `${key} x1`))
    await sent[2]?.answer()
    await sent[1]?.answer()
    expect(asked().slice(5)).toEqual([`${held[4]} x1`, `${held[5]} x1`])
    expect(sent.slice(1).every(({ kind }) => kind === 'alone')).toBe(true)
    vi.useRealTimers()
  })

  test('never causes more statements than the connections and four', async () => {
    const { add, sent } = setUp(3)
    const pending = new Set<Sent>()
    let most = 0
    for (let round = 0; round < 50; round++) {
      for (const key of keysNamed('key', 40)) add(`${key} of ${round % 3}`)
      await turn()
      for (const each of sent.splice(0)) pending.add(each)
      most = Math.max(most, pending.size)
      const together = [...pending].filter(({ kind }) => kind === 'together')
      expect(together.length).toBeLessThanOrEqual(3)
      const underWay = [...pending].flatMap(({ groups }) => groups.map(({ request }) => request.key))
      expect(new Set(underWay).size).toBe(underWay.length)
      for (const one of [...pending].filter((_, i) => i % 2 === round % 2)) {
        pending.delete(one)
        const [first] = one.groups
        await one.answer(one.kind === 'together' && first ? [first.request.key] : [])
      }
    }
    expect(most).toBeGreaterThan(3)
    expect(most).toBeLessThanOrEqual(3 + 4)
  })

  test('counts as held for a tenth of a second, and then as free', async () => {
    let monotonic = 1000
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => monotonic)
    const { add, sent } = setUp()
    add('held')
    await turn()
    await sent[0]?.answer(['held'])
    await sent[1]?.answer()
    monotonic += 99
    add('held')
    await turn()
    expect(sent[2]?.kind).toBe('alone')
    await sent[2]?.answer()
    monotonic += 1
    add('held')
    await turn()
    expect(sent[3]?.kind).toBe('together')
    clock.mockRestore()
  })
})

test('no more than 1,000 keys are remembered as held', async () => {
  // No time passes: without the bound, each would still be remembered.
  const clock = vi.spyOn(performance, 'now').mockReturnValue(1000)
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  const { add, sent } = setUp(3)
  const keys = keysNamed('key', 1001)
  for (const key of keys) add(key)
  await turn()
  for (const each of sent.splice(0)) await each.answer(keys)
  while (sent.length > 0) await sent.shift()?.answer()
  for (const key of [keys[0], keys[1000]]) add(key ?? expect.fail())
  await turn()
  expect(sent.map(({ kind, asked }) => `${asked} ${kind}`)).toEqual([
    `${keys[0]} x1 together`,
    `${keys[1000]} x1 alone`,
  ])
  vi.useRealTimers()
  clock.mockRestore()
})

describe('after a key was held', () => {
  test('a look at it is sent with the calls that wait for no row', async () => {
    const { add, sent } = setUp()
    add('held')
    await turn()
    await sent[0]?.answer(['held'])
    add('held', { rate: 0, purpose: 'look' })
    await turn()
    expect(sent.map(({ kind }) => kind)).toEqual(['together', 'alone', 'together'])
  })

  test('as many calls may wait as before it', async () => {
    const { add, fill, errors, sent } = setUp(1)
    for (let i = 0; i < 1000; i++) add('held')
    await turn()
    await sent[0]?.answer(['held'])
    for (let i = 0; i < 1000; i++) add('held')
    expect(errors).toHaveLength(0)
    fill(9000)
    expect(errors).toHaveLength(0)
    add('other')
    expect(errors).toHaveLength(1)
  })

  test('a call that finds no place to wait is tried again after 50 ms, without waiting', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const { add, asked, sent } = setUp()
    const held = keysNamed('held', 6)
    for (const key of held) add(key)
    await turn()
    await sent[0]?.answer(held)
    vi.advanceTimersByTime(49)
    await turn()
    expect(sent).toHaveLength(1 + 4)
    vi.advanceTimersByTime(1)
    await turn()
    expect(sent[5]?.kind).toBe('together')
    expect(asked()[5]).toBe(`${held[4]} x1,${held[5]} x1`)
    vi.useRealTimers()
  })

  test('calls that were given up in the meantime are not sent again', async () => {
    const { add, coalescer, answered, asked, errors, sent } = setUp(1)
    const calls = ['a', 'a', 'b', 'c'].map((key) => add(key))
    await turn()
    for (const place of [0, 2]) coalescer.cancel(calls[place] as Pending)
    add('b', { rate: 2 })
    await sent[0]?.answer(['a', 'b'])
    // They have charged nothing, and are no sign of an outage.
    const ended = { code: 'TIMEOUT', contended: true }
    expect(errors).toMatchObject([ended, ended])
    // The group of b has ended, and the next one is tried.
    expect(asked()).toEqual(['a x2,b x1,c x1', 'b x1', 'a x1'])
    expect(sent.slice(1).map(({ kind }) => kind)).toEqual(['together', 'alone'])
    await sent[1]?.answer()
    await sent[2]?.answer()
    expect(answered).toEqual(['c 4', 'b 5', 'a 2'])
  })

  test('calls that were given up before they found a place to wait are not sent again', async () => {
    const { add, coalescer, asked, sent } = setUp()
    const held = keysNamed('held', 4)
    const calls = ['last', 'last', 'last'].map((key) => add(key))
    await turn()
    await sent[0]?.answer(['last'])
    await sent[1]?.answer()
    for (const key of held) add(key)
    await turn()
    await sent[2]?.answer(held)
    expect(sent).toHaveLength(3 + 4)
    const waiting = Array.from({ length: 3 }, () => add('last'))
    await turn()
    coalescer.cancel(waiting[0] as Pending)
    await sent[3]?.answer()
    expect(calls).toHaveLength(3)
    expect(asked().at(-1)).toBe('last x2')
    expect(sent.at(-1)?.kind).toBe('alone')
  })

  test('a call that is tried again is known to have waited for its row, and is in a statement that does not', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const { add, coalescer, sent } = setUp(1)
    const held = keysNamed('held', 5)
    const calls = held.map((key) => add(key))
    await turn()
    await sent[0]?.answer(held)
    const last = calls[4] as Pending
    vi.advanceTimersByTime(50)
    await turn()
    expect(sent[5]?.asked).toBe(`${held[4]} x1`)
    expect(coalescer.cancel(last)).toBe(true)
    expect(last).toMatchObject({ isContended: true, batch: { mayWait: false } })
    vi.useRealTimers()
  })

  test('it counts as free once a call got its row', async () => {
    let monotonic = 1000
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => monotonic)
    const { add, coalescer, sent } = setUp(1)
    add('held')
    const next = add('held', { rate: 2 })
    await turn()
    await sent[0]?.answer(['held'])
    add('other')
    await turn()
    monotonic += 100
    await sent[1]?.answer()
    // It waits for the only connection, which another key has.
    expect(coalescer.cancel(next)).toBe(false)
    // It has waited behind another call of its key.
    expect(next.isContended).toBe(true)
    const after = add('held')
    expect(coalescer.cancel(after)).toBe(false)
    expect(after.isContended).toBe(false)
    clock.mockRestore()
  })
})

describe('a statement whose callers have all given up', () => {
  let monotonic = 0
  beforeEach(() => {
    monotonic = 0
    vi.spyOn(performance, 'now').mockImplementation(() => monotonic)
  })
  afterEach(() => void vi.restoreAllMocks())

  test('gives its place to another statement, and its keys start a new line', async () => {
    const { add, coalescer, asked, answered, sent } = setUp(1)
    const calls = ['a', 'a', 'b'].map((key) => add(key))
    await turn()
    add('a')
    for (const call of calls) {
      expect(asked()).toEqual(['a x2,b x1'])
      expect(coalescer.cancel(call)).toBe(true)
      expect(call).toMatchObject({ batch: { mayWait: false } })
      await turn()
    }
    expect(asked()).toEqual(['a x2,b x1', 'a x1'])
    add('b')
    await sent[1]?.answer()
    expect(answered).toEqual(['a 4'])
    expect(asked().slice(2)).toEqual(['b x1'])
  })

  test('keeps its place as long as a caller waits for one of its keys', async () => {
    const { add, coalescer, asked, sent } = setUp(1)
    const first = add('a')
    add('b')
    await turn()
    coalescer.cancel(first)
    add('a')
    await turn()
    expect(asked()).toEqual(['a x1,b x1'])
    await sent[0]?.answer()
    expect(asked()).toEqual(['a x1,b x1', 'a x1'])
  })

  test('also gives its place up when the last waiting caller gets an answer', async () => {
    const { add, coalescer, asked, sent } = setUp(1)
    const stuck = add('stuck')
    add('decided')
    await turn()
    coalescer.cancel(stuck)
    sent[0]?.decide('decided')
    add('stuck')
    await turn()
    expect(asked()).toEqual(['stuck x1,decided x1', 'stuck x1'])
  })

  test.each([
    { kind: 'is answered', held: [] },
    { kind: 'finds its rows held', held: ['a', 'b'] },
  ])('frees nothing a second time when it $kind after all', async ({ held }) => {
    const { add, fill, coalescer, asked, sent, errors } = setUp(1)
    for (const call of ['a', 'b'].map((key) => add(key))) {
      await turn()
      coalescer.cancel(call)
    }
    for (let i = 0; i < 2; i++) add('a', { rate: 2 + i })
    await turn()
    expect(asked()).toEqual(['a x1,b x1', 'a x1'])
    await sent[0]?.answer(held)
    add('b')
    await turn()
    // One place, which the second statement has, and one statement for each key.
    expect(asked()).toEqual(['a x1,b x1', 'a x1'])
    await sent[1]?.answer()
    expect(asked().slice(2)).toEqual(['b x1,a x1'])
    await sent[2]?.answer()
    // None of them counts as waiting.
    add('other')
    await turn()
    fill(10_000)
    expect(errors).toHaveLength(held.length)
    add('one more')
    expect(errors).toHaveLength(held.length + 1)
  })

  test('gives its place after ever longer pauses, until a statement ends', async () => {
    const { add, coalescer, sent } = setUp(2)
    let keys = 0
    /** When calls that come all the time, and give up at once, are sent. */
    const sentAt = async (untilMs: number) => {
      const times: number[] = []
      for (; monotonic < untilMs; monotonic += 500) {
        const before = sent.length
        const call = add(`key ${keys++}`)
        await turn()
        if (sent.length > before) times.push(monotonic)
        coalescer.cancel(call)
        await turn()
      }
      return times
    }
    expect(await sentAt(40_000)).toEqual([0, 500, 1000, 3000, 7000, 15_000, 31_000])
    await sent[0]?.answer()
    expect(await sentAt(46_000)).toEqual([40_000, 44_000])
  })

  test('keeps its place among those that may wait for a row, and its key is tried without waiting', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout'] })
    const { add, coalescer, asked, answered, sent } = setUp(1)
    const first = add('held')
    await turn()
    await sent[0]?.answer(['held'])
    expect(sent[1]?.kind).toBe('alone')
    expect(coalescer.cancel(first)).toBe(true)
    expect(first).toMatchObject({ isContended: true, batch: { mayWait: true } })
    monotonic += 100
    add('held')
    await turn()
    expect(sent[2]?.kind).toBe('together')
    await sent[2]?.answer(['held'])
    expect(sent).toHaveLength(3)
    // Others have the other places.
    for (const key of keysNamed('other', 4)) add(key)
    await turn()
    await sent[3]?.answer(keysNamed('other', 4))
    expect(sent.slice(4).map(({ kind }) => kind)).toEqual(['alone', 'alone', 'alone'])
    vi.advanceTimersByTime(50)
    await turn()
    expect(asked()[7]).toBe('held x1,other 3 x1')
    await sent[7]?.answer()
    expect(answered).toEqual(['held 2', 'other 3 6'])
    vi.useRealTimers()
  })
})

describe('a call that comes in the pause before the next place is freed', () => {
  beforeEach(fakeTime)
  afterEach(() => {
    vi.restoreAllMocks()
    vi.useRealTimers()
  })

  /** One place. It was freed now, and no call waits for the statement that has it since then. */
  async function inPause() {
    const { add, coalescer, ...rest } = setUp(1)
    /** Adds a call whose caller gives up as soon as it was sent or waits. */
    const giveUp = async (key: string) => {
      const call = add(key)
      await turn()
      coalescer.cancel(call)
      await turn()
    }
    await giveUp('first')
    await giveUp('second')
    expect(rest.asked()).toEqual(['first x1', 'second x1'])
    return { add, coalescer, giveUp, ...rest }
  }

  /** So many milliseconds pass, and then a turn. */
  async function pass(ms: number) {
    vi.advanceTimersByTime(ms)
    await turn()
  }

  test('is sent at its end, though no other call comes and no statement ends', async () => {
    const { add, asked } = await inPause()
    await pass(500)
    add('waits')
    await turn()
    await pass(1499)
    expect(asked()).toHaveLength(2)
    await pass(1)
    expect(asked().slice(2)).toEqual(['waits x1'])
    expect(ownTimers()).toEqual([])
  })

  test('shares one timer with other calls, which ends when the last of them gives up', async () => {
    const { add, coalescer } = await inPause()
    expect(ownTimers()).toEqual([])
    const calls: Pending[] = []
    for (const key of ['a', 'b', 'c']) {
      calls.push(add(key))
      await turn()
    }
    for (const call of calls) {
      expect(ownTimers()).toHaveLength(1)
      coalescer.cancel(call)
    }
    expect(ownTimers()).toEqual([])
  })

  test('is sent at once if the clock was taken back, as by the end of fake timers', async () => {
    const { add, asked } = await inPause()
    vi.spyOn(performance, 'now').mockReturnValue(performance.now() - 40 * 86_400_000)
    add('waits')
    await turn()
    expect(asked().slice(2)).toEqual(['waits x1'])
    expect(ownTimers()).toEqual([])
  })

  test('needs no timer any more when a statement ends', async () => {
    const { add, asked, sent } = await inPause()
    add('waits')
    await turn()
    await sent[1]?.answer()
    expect(asked().slice(2)).toEqual(['waits x1'])
    expect(ownTimers()).toEqual([])
  })

  test('waits for a short pause again when a statement ends that has no place any more', async () => {
    const { add, giveUp, asked, sent } = await inPause()
    await pass(2000)
    await giveUp('third')
    add('waits')
    await turn()
    await pass(1000)
    await sent[0]?.answer()
    await pass(999)
    expect(asked()).toHaveLength(3)
    await pass(1)
    expect(asked().slice(3)).toEqual(['waits x1'])
  })

  test('waits for a day at most', async () => {
    const { add, coalescer, sent } = await inPause()
    const pauses: number[] = []
    for (let i = 0; i < 19; i++) {
      const before = performance.now()
      const call = add(`key ${i}`)
      await turn()
      vi.advanceTimersToNextTimer()
      await turn()
      pauses.push((performance.now() - before) / 1000)
      coalescer.cancel(call)
      await turn()
    }
    expect(pauses.slice(0, 4)).toEqual([2, 4, 8, 16])
    expect(pauses.slice(-4)).toEqual([65_536, 86_400, 86_400, 86_400])
    expect(sent).toHaveLength(2 + 19)
  })

  test('has no timer as long as a caller waits for the statements under way', async () => {
    const { add, sent } = setUp(1)
    add('a')
    await turn()
    add('b')
    await turn()
    expect(sent).toHaveLength(1)
    expect(ownTimers()).toEqual([])
  })

  test('keeps no process alive by its timer', async () => {
    const { add } = await inPause()
    const timers = vi.spyOn(globalThis, 'setTimeout')
    add('waits')
    await turn()
    expect(timers.mock.results.map(({ value }) => value.hasRef())).toEqual([false])
  })

  test('is also sent in runtimes whose timers are numbers', async () => {
    const { add, asked } = await inPause()
    const set = setTimeout
    vi.spyOn(globalThis, 'setTimeout').mockImplementation((...timer) => Number(set(...timer)) as never)
    add('waits')
    await turn()
    await pass(2000)
    expect(asked().slice(2)).toEqual(['waits x1'])
  })
})

test('while 10,000 calls wait, another is refused until some are sent', async () => {
  const { add, fill, answered, errors, sent } = setUp(1)
  fill(10_000)
  for (const key of ['a', 'b']) add(key)
  expect(errors).toMatchObject(Array(2).fill({ code: 'OVERLOADED', contended: false }))
  await turn()
  add('c')
  expect(errors).toHaveLength(2)
  await sent[0]?.answer(['many 0'])
  expect(answered).toHaveLength(9000)
  add('c')
  expect(errors).toHaveLength(2)
})

test('while 1,000 calls of a key wait, more of its calls are refused, and calls of other keys are not', async () => {
  const { add, answered, errors, sent } = setUp(1)
  for (let i = 0; i < 1000; i++) add('many')
  expect(errors).toEqual([])
  add('many')
  expect(errors).toMatchObject([{ code: 'OVERLOADED', contended: true }])
  add('many', { rate: 0, purpose: 'look' })
  add('other')
  expect(errors).toHaveLength(1)
  await turn()
  await sent[0]?.answer()
  expect(answered).toHaveLength(1001)
  add('many')
  expect(errors).toHaveLength(1)
})

describe('a call knows whether it has waited for its own key', () => {
  test.each<[string, Partial<Request>, boolean]>([
    ['an equal call of the same turn', {}, true],
    ['another call of the same turn', { rate: 2 }, true],
    ['a look', { rate: 0, purpose: 'look' }, false],
  ])('%s', async (_, asking, isContended) => {
    const { add } = setUp()
    add('key')
    expect(add('key', asking).isContended).toBe(isContended)
    expect(add('other').isContended).toBe(false)
  })

  test('a call that comes while another statement of the key is under way', async () => {
    const { add, sent } = setUp()
    add('key')
    await turn()
    const behind = add('key')
    expect(behind.isContended).toBe(true)
    await sent[0]?.answer()
    await sent[1]?.answer()
    // Nothing of the key waits any more.
    expect(add('key').isContended).toBe(false)
  })

  test('a call that comes while its row is held', async () => {
    const { add, sent } = setUp()
    const first = add('held')
    await turn()
    expect(first.isContended).toBe(false)
    await sent[0]?.answer(['held'])
    expect(first.isContended).toBe(true)
    await sent[1]?.answer()
    expect(add('held').isContended).toBe(true)
  })
})

test('a look waits for no call of its key', async () => {
  const { add, asked } = setUp()
  add('a')
  await turn()
  add('a', { rate: 0, purpose: 'look' })
  await turn()
  expect(asked()).toEqual(['a x1', 'a x1'])
})

describe('calls that give up before they are sent', () => {
  test('are not sent with equal calls that still wait', async () => {
    const { add, coalescer, sent, asked, answered } = setUp(1)
    const [first] = [1, 1, 1].map(() => add('key'))
    coalescer.cancel(first as Pending)
    await turn()
    await sent[0]?.answer()
    expect(asked()).toEqual(['key x2'])
    expect(answered).toEqual(['key 2', 'key 3'])
  })

  test('leave room for another call, of their key too', () => {
    const { add, coalescer, errors } = setUp(1)
    const [first] = Array.from({ length: 10_000 }, (_, i) => add(`many ${i % 10}`))
    coalescer.cancel(first as Pending)
    add('many 0')
    expect(errors).toEqual([])
    add('other')
    expect(errors).toMatchObject([{ code: 'OVERLOADED' }])
  })

  test('leave the first place in the line to the calls of a statement', async () => {
    const { add, coalescer, sent, asked } = setUp(1)
    const first = add('a')
    add('b')
    await turn()
    coalescer.cancel(first)
    const second = add('a', { rate: 2 })
    add('a', { rate: 3 })
    coalescer.cancel(second)
    await sent[0]?.answer()
    expect(asked()).toEqual(['a x1,b x1', 'a x1'])
  })
})

describe('calls of one key that all give up at once', () => {
  const WALKING = ['includes', 'indexOf', 'lastIndexOf', 'find', 'findIndex', 'filter', 'flatMap'] as const

  /** What giving up tells, and how many members of lists are walked over for it. */
  function cancelAll(coalescer: Coalescer, calls: readonly Pending[]) {
    const own = WALKING.map((method) => [method, Array.prototype[method]] as const)
    let steps = 0
    for (const [method, walk] of own) {
      function counted(this: unknown[], ...args: unknown[]): unknown {
        steps += this.length
        return Reflect.apply(walk, this, args)
      }
      Object.assign(Array.prototype, { [method]: counted })
    }
    const told = new Set<string>()
    for (const call of calls) told.add(JSON.stringify(coalescer.cancel(call)))
    Object.assign(Array.prototype, Object.fromEntries(own))
    return { told: [...told], steps }
  }

  const orders: Record<string, (calls: Pending[]) => Pending[]> = {
    'the first one first': (calls) => calls,
    'the last one first': (calls) => calls.toReversed(),
    'from the middle on': (calls) => [...calls.slice(calls.length / 2), ...calls.slice(0, calls.length / 2)],
  }
  const ratesOf = { 'equal calls': () => 1, 'different calls': (i: number) => 1 + (i % 2) }

  describe.each(Object.entries(ratesOf))('%s', (_, rateOf) => {
    test.each(Object.entries(orders))('%s: take a few steps each', async (_, inOrder) => {
      const { add, coalescer, sent, asked, answered } = setUp(1)
      add('key')
      await turn()
      const calls = Array.from({ length: 1_000 }, (_, i) => add('key', { rate: rateOf(i) }))
      const { told, steps } = cancelAll(coalescer, inOrder(calls))
      expect(told).toEqual(['false'])
      expect(steps).toBeLessThan(10 * calls.length)
      // None of them has a place or is sent.
      for (let i = 0; i < 999; i++) add('another key')
      add('key')
      await sent[0]?.answer()
      await sent[1]?.answer()
      expect(asked()).toEqual(['key x1', 'another key x999,key x1'])
      expect(answered).toHaveLength(1_001)
    })
  })

  test('in a statement take a few steps each', async () => {
    const { add, coalescer } = setUp(1)
    const calls = Array.from({ length: 1_000 }, () => add('key'))
    await turn()
    const { told, steps } = cancelAll(coalescer, calls)
    expect(told).toEqual(['true'])
    expect(steps).toBeLessThan(10 * calls.length)
  })

  test('leave the remaining calls to be sent in their order', async () => {
    const { add, coalescer, sent, asked, answered } = setUp(1)
    const calls = [1, 1, 1, 2, 3, 3, 1].map((rate) => add('key', { rate }))
    for (const place of [0, 2, 3, 5]) coalescer.cancel(calls[place] as Pending)
    for (let i = 0; i < 3; i++) {
      await turn()
      await sent[i]?.answer()
    }
    expect(asked()).toEqual(['key x1', 'key x1', 'key x1'])
    expect(answered).toEqual(['key 2', 'key 5', 'key 7'])
  })
})
