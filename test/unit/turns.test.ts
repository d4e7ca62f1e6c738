import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Turn, Turns } from '../../src/kernel/queue/turns.ts'
import type { QueuedList } from '../../src/kernel/queue/waiting-list.ts'

// Lists of rows: those that are ready together share a statement, and a row has one list at a time.
//
// This needs the class: it is about which lists are in which of the statements that have no answer yet. What
// callers see is tested in concurrency/shared-lists and behaviour/process/outages.

// On a busy machine, a statement of the test may take longer than lists wait for it.
beforeEach(() => void vi.spyOn(performance, 'now').mockReturnValue(0))
afterEach(() => void vi.restoreAllMocks())

/** A statement that was sent, and how to end it. */
interface Sent {
  readonly lists: readonly string[]
  readonly isCommon: readonly boolean[]
  end(undecided?: readonly string[]): Promise<void>
}

interface Named extends QueuedList {
  readonly name: string
}

/** A list that is decided by itself. */
interface Alone {
  readonly name: string
  mayWait(held?: readonly string[]): Promise<void>
  end(): Promise<void>
}

function turnsOf() {
  const sent: Sent[] = []
  const alone: Alone[] = []
  const turns = new Turns<Named, string>(
    (lists, isCommon, tell) =>
      new Promise((resolve) => {
        sent.push({
          lists: lists.map(({ name }) => name),
          isCommon,
          end(undecided = []) {
            for (const [place, { name }] of lists.entries()) if (!undecided.includes(name)) tell(place, name)
            resolve()
            return settled()
          },
        })
      }),
    ({ name }, mayWait) =>
      new Promise((resolve) => {
        const end = () => {
          resolve(`${name} alone`)
          return settled()
        }
        alone.push({ name, mayWait: (held = []) => mayWait(held), end })
      }),
  )
  return { turns, sent, alone }
}

function list(name: string, rows: readonly string[], shares?: readonly (number | undefined)[]): Named {
  return { name, rows, kind: 'kind', shares: rows.map((_, place) => shares?.[place]?.toString()) }
}

/** Promises have run. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

async function hasCome(turn: Turn<string>): Promise<string | undefined | false> {
  return Promise.race([turn.comes, settled().then((): false => false)])
}

function never(): Promise<string> {
  return new Promise(() => {})
}

/** The one statement that is under way. */
function only(sent: readonly Sent[]): Sent {
  expect(sent).toHaveLength(1)
  return sent[0] as Sent
}

test('lists that come together and have no row in common share a statement', async () => {
  const { turns, sent } = turnsOf()
  const all = [list('first', ['a', 'b']), list('second', ['c', 'd'])].map((each) => turns.enter(each))
  await settled()
  expect(only(sent)).toMatchObject({ lists: ['first', 'second'], isCommon: [false, false] })
  await only(sent).end()
  expect(await Promise.all(all.map(hasCome))).toEqual(['first', 'second'])
})

test('lists of one row run one after the other, in their order', async () => {
  const { turns, sent } = turnsOf()
  const all = [list('first', ['a']), list('second', ['b', 'a']), list('third', ['a', 'c'])]
  expect(all.map((each) => turns.enter(each).isBehind)).toEqual([false, true, true])
  for (const name of ['first', 'second', 'third']) {
    await settled()
    expect(sent.at(-1)?.lists).toEqual([name])
    await sent.at(-1)?.end()
  }
  expect(sent).toHaveLength(3)
})

test('lists share a statement if all ask the same of their common row', async () => {
  const { turns, sent } = turnsOf()
  const asking = (name: string, own: string, rate: number) =>
    list(name, ['everybody', own], [rate, undefined])
  for (const one of [asking('a', 'a', 1), asking('b', 'b', 1), asking('more', 'c', 2), asking('d', 'd', 1)])
    turns.enter(one)
  await settled()
  // What shares for more waits, and so do those behind it.
  expect(only(sent)).toMatchObject({ lists: ['a', 'b'], isCommon: [true, false] })
  await only(sent).end()
  expect(sent.slice(1)).toMatchObject([{ lists: ['more'] }])
  await sent[1]?.end()
  expect(sent.slice(2)).toMatchObject([{ lists: ['d'] }])
})

test('a row that few lists have in common keeps no other list out of a statement', async () => {
  const { turns, sent } = turnsOf()
  const asking = (name: string, rows: readonly string[]) => list(name, rows, [1, 1])
  for (const one of [asking('a', ['x', 'a']), asking('b', ['x', 'b']), asking('c', ['y', 'c'])])
    turns.enter(one)
  for (const name of ['d', 'e']) turns.enter(asking(name, [name, `own ${name}`]))
  turns.enter({ ...asking('another', ['z', 'f']), kind: 'another' })
  await settled()
  expect(sent[0]).toMatchObject({ lists: ['a', 'c', 'd', 'e'], isCommon: [false, false] })
  await sent[0]?.end()
  for (let i = 1; i < 3; i++) await sent[i]?.end()
  expect(sent.map(({ lists }) => lists).slice(1)).toEqual([['another'], ['b']])
})

test('lists of another kind do not keep those with a common row apart', async () => {
  const { turns, sent } = turnsOf()
  for (const name of ['a', 'b']) turns.enter(list(name, ['everybody', name], [1, undefined]))
  for (const name of ['c', 'd', 'e']) turns.enter({ ...list(name, [name, `own ${name}`]), kind: 'another' })
  await settled()
  expect(sent[0]).toMatchObject({ lists: ['c', 'd', 'e'], isCommon: [false, false] })
  await sent[0]?.end()
  expect(sent[1]).toMatchObject({ lists: ['a', 'b'], isCommon: [true, false] })
})

test('the kind with the most lists is sent first, and the others wait for that once', async () => {
  const { turns, sent } = turnsOf()
  const enter = (kind: string, names: readonly string[]) => {
    for (const name of names) turns.enter({ ...list(name, [name]), kind })
  }
  const many = (name: string) => Array.from({ length: 24 }, (_, place) => `${name}${place}`)
  enter('few', ['x'])
  enter('many', many('a'))
  await settled()
  expect(only(sent)).toMatchObject({ lists: many('a') })
  enter('few', ['y'])
  enter('many', many('b'))
  await settled()
  expect(sent.slice(1)).toMatchObject([{ lists: ['x', 'y'] }, { lists: many('b') }])
})

test('kinds that have more lists than a statement takes keep no other kind waiting', async () => {
  const { turns, sent } = turnsOf()
  const enter = (kind: string, count: number) => {
    for (let place = 0; place < count; place++) turns.enter({ ...list(kind, [`${kind}${place}`]), kind })
  }
  enter('many', 2000)
  enter('more', 1999)
  enter('few', 1)
  await settled()
  expect(sent.slice(0, 3).map(({ lists: [first] }) => first)).toEqual(['many', 'more', 'few'])
})

test('equal lists share a statement, and all of their rows are common', async () => {
  const { turns, sent } = turnsOf()
  for (const name of ['a', 'b', 'c']) turns.enter(list(name, ['x', 'y'], [1, 1]))
  await settled()
  expect(only(sent)).toMatchObject({ lists: ['a', 'b', 'c'], isCommon: [true, true] })
})

test('lists that have a row at different places do not share a statement', async () => {
  const { turns, sent } = turnsOf()
  for (const rows of [
    ['a', 'b'],
    ['b', 'a'],
    ['c', 'd'],
  ])
    turns.enter(list(rows.join(''), rows, [1, 1]))
  await settled()
  expect(only(sent).lists).toEqual(['ab', 'cd'])
})

test('lists of different kinds do not share a statement', async () => {
  const { turns, sent } = turnsOf()
  turns.enter(list('a', ['a']))
  turns.enter({ ...list('b', ['b']), kind: 'another' })
  await settled()
  for (let i = 0; i < 2; i++) await sent[i]?.end()
  expect(sent.map(({ lists }) => lists)).toEqual([['a'], ['b']])
})

test('while many are under way, the next ones wait until they are worth a statement', async () => {
  const { turns, sent } = turnsOf()
  const enter = (names: readonly string[]) => {
    for (const name of names) turns.enter(list(name, [name]))
    return settled()
  }
  const named = (what: string, many: number) => Array.from({ length: many }, (_, i) => `${what} ${i}`)
  await enter(named('first', 30))
  await enter(named('next', 23))
  expect(sent).toHaveLength(1)
  await enter(['last'])
  expect(sent[1]?.lists).toHaveLength(24)
  await enter(['behind'])
  await sent[0]?.end()
  expect(sent).toHaveLength(2)
  await sent[1]?.end()
  expect(sent[2]?.lists).toEqual(['behind'])
})

test.each([
  { rows: 1, lists: 100 },
  { rows: 4, lists: 100 },
  { rows: 6, lists: 66 },
  { rows: 50, lists: 8 },
])('of lists of $rows rows, at most $lists share a statement', async ({ rows, lists }) => {
  const { turns, sent } = turnsOf()
  const rowsOf = (name: string) => Array.from({ length: rows }, (_, i) => `${name} ${i}`)
  for (let i = 0; i < 300; i++) turns.enter(list(String(i), rowsOf(String(i))))
  await settled()
  expect(sent[0]?.lists).toHaveLength(lists)
})

test('many lists are sent in two halves, so that the server works while this process does', async () => {
  const { turns, sent } = turnsOf()
  for (let i = 0; i < 64; i++) turns.enter(list(String(i), [String(i)]))
  await settled()
  expect(sent.map(({ lists }) => lists.length)).toEqual([32, 32])
})

test('a few lists do not wait for each other', async () => {
  const { turns, sent } = turnsOf()
  for (const name of ['a', 'b', 'c']) {
    turns.enter(list(name, [name]))
    await settled()
  }
  // The third one waits for two: it would have a statement of its own.
  expect(sent.map(({ lists }) => lists)).toEqual([['a'], ['b']])
  await sent[0]?.end()
  expect(sent[2]?.lists).toEqual(['c'])
})

test('an undecided list goes on alone, before the lists behind it', async () => {
  const { turns, sent, alone } = turnsOf()
  const [first, second, behind] = [
    turns.enter(list('first', ['a'])),
    turns.enter(list('second', ['b'])),
    turns.enter(list('behind', ['a'])),
  ]
  await settled()
  await sent[0]?.end(['first'])
  expect(await hasCome(second)).toBe('second')
  expect(alone).toMatchObject([{ name: 'first' }])
  expect(sent).toHaveLength(1)
  await alone[0]?.end()
  expect(await hasCome(first)).toBe('first alone')
  expect(sent[1]?.lists).toEqual(['behind'])
  await sent[1]?.end()
  expect(await hasCome(behind)).toBe('behind')
})

test('of undecided lists with a common row the first goes on alone, and the others share one more statement', async () => {
  const { turns, sent, alone } = turnsOf()
  const names = () => alone.map(({ name }) => name)
  const all = ['a', 'b', 'c'].map((name) => turns.enter(list(name, ['everybody', name], [1, undefined])))
  await settled()
  await sent[0]?.end(['a', 'b', 'c'])
  expect(names()).toEqual(['a'])
  expect(sent).toHaveLength(1)
  await alone[0]?.end()
  expect(sent[1]?.lists).toEqual(['b', 'c'])
  // Then each goes alone, in its turn.
  await sent[1]?.end(['b', 'c'])
  expect(names()).toEqual(['a', 'b'])
  await alone[1]?.end()
  expect(names()).toEqual(['a', 'b', 'c'])
  await alone[2]?.end()
  expect(await Promise.all(all.map(hasCome))).toEqual(['a alone', 'b alone', 'c alone'])
})

test('four lists go on alone at once, and the next when one has ended', async () => {
  const { turns, sent, alone } = turnsOf()
  const names = ['a', 'b', 'c', 'd', 'e']
  for (const name of names) turns.enter(list(name, [name]))
  await settled()
  await sent[0]?.end(names)
  expect(alone.map(({ name }) => name)).toEqual(['a', 'b', 'c', 'd'])
  await alone[2]?.end()
  expect(alone.map(({ name }) => name)).toEqual(names)
})

test('lists that may wait for rows leave their places to others, and four may wait at once', async () => {
  const { turns, sent, alone } = turnsOf()
  const names = ['a', 'b', 'c', 'd', 'e', 'f']
  for (const name of names) turns.enter(list(name, [name]))
  await settled()
  await sent[0]?.end(names)
  const waiting: string[] = []
  const wait = ({ name, mayWait }: Alone) => void mayWait().then(() => waiting.push(name))
  for (const each of alone.splice(0)) wait(each)
  await settled()
  expect(waiting).toEqual(['a', 'b', 'c', 'd'])
  expect(alone.map(({ name }) => name)).toEqual(['e', 'f'])
  const [last] = alone as [Alone]
  wait(last)
  await settled()
  expect(waiting).toHaveLength(4)
})

test('the lists behind one that gives up go on, whether it waited or was under way', async () => {
  const { turns, sent } = turnsOf()
  const [first, second] = [turns.enter(list('first', ['a'])), turns.enter(list('second', ['a']))]
  const third = turns.enter(list('third', ['a']))
  await settled()
  second.giveUp()
  await settled()
  expect(sent).toHaveLength(1)
  first.giveUp()
  await settled()
  expect(sent[1]?.lists).toEqual(['third'])
  await sent[1]?.end()
  await sent[0]?.end()
  expect(await hasCome(third)).toBe('third')
  expect(await hasCome(second)).toBe(false)
  turns.enter(list('later', ['a']))
  await settled()
  expect(sent[2]?.lists).toEqual(['later'])
})

test('a statement goes on for the others when one of its callers gives up', async () => {
  const { turns, sent } = turnsOf()
  const [first, second] = [turns.enter(list('first', ['a'])), turns.enter(list('second', ['b']))]
  turns.enter(list('behind', ['a']))
  await settled()
  first.giveUp()
  await settled()
  expect(sent).toHaveLength(1)
  await sent[0]?.end(['first'])
  expect(await hasCome(second)).toBe('second')
  // No list waits for the first one any more.
  expect(sent[1]?.lists).toEqual(['behind'])
})

test('lists whose callers have given up wait for no slot', async () => {
  const { turns, sent, alone } = turnsOf()
  const all = ['a', 'b', 'c', 'd', 'e'].map((row) => turns.enter(list(row, [row])))
  await settled()
  for (const turn of all) turn.giveUp()
  await only(sent).end(['a', 'b', 'c', 'd', 'e'])
  const waits = alone.map(({ mayWait }) => mayWait().then(() => true))
  expect(await Promise.race([Promise.all(waits), settled()])).toEqual([true, true, true, true, true])
})

test('a list that is told its verdict early does not keep a statement that never ends', async () => {
  const sent: string[][] = []
  const turns = new Turns<Named, string>((lists, _, tell) => {
    sent.push(lists.map(({ name }) => name))
    tell(0, 'told')
    return new Promise(() => {})
  }, never)
  const [told, other] = [turns.enter(list('told', ['a'])), turns.enter(list('other', ['b']))]
  expect(await told.comes).toBe('told')
  other.giveUp()
  for (const row of ['a', 'b']) turns.enter(list(`behind ${row}`, [row]))
  await settled()
  expect(sent).toEqual([
    ['told', 'other'],
    ['behind a', 'behind b'],
  ])
})

test('all lists of a failed statement get its error, and the lists behind them go on', async () => {
  const sent: string[][] = []
  const turns = new Turns<Named, string>(async (lists) => {
    sent.push(lists.map(({ name }) => name))
    throw new Error('away')
  }, never)
  const all = [list('a', ['a']), list('b', ['b']), list('behind', ['a'])].map((each) => turns.enter(each))
  const ends = await Promise.allSettled(all.map(({ comes }) => comes))
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  expect(sent).toEqual([['a', 'b'], ['behind']])
})

test('at most 1,000 lists wait for one row, which leaves room for others', () => {
  const { turns } = turnsOf()
  for (let i = 0; i < 1_000; i++) turns.enter(list(`${i}`, ['a']))
  const refused = expect.objectContaining({ code: 'OVERLOADED', contended: true })
  expect(() => turns.enter(list('one more', ['b', 'a']))).toThrow(refused)
  expect(turns.enter(list('another', ['b'])).isBehind).toBe(false)
})

describe('a list that waits for a held row', () => {
  /** The first of them waits, and has left the common row. The others go on. */
  async function waiting(...owns: readonly string[]) {
    const made = turnsOf()
    const { turns, sent, alone } = made
    const entered = owns.map((own, place) => turns.enter(list(`${place}`, ['everybody', own])))
    await settled()
    await sent[0]?.end(['0'])
    expect(alone.map(({ name }) => name)).toEqual(['0'])
    await alone[0]?.mayWait(['held'])
    await settled()
    /** Those that were sent since then. */
    const since = () => sent.slice(1).map(({ lists }) => lists)
    return { ...made, entered, since }
  }

  test('keeps only those waiting that have the same row, until it is decided', async () => {
    const { turns, sent, alone, since } = await waiting('held', 'held', 'free')
    turns.enter(list('later', ['held', 'everybody']))
    expect(since()).toEqual([['2']])
    await sent[1]?.end()
    expect(since()).toEqual([['2']])
    await alone[0]?.end()
    expect(since()).toEqual([['2'], ['1']])
    await sent[2]?.end()
    expect(since()).toEqual([['2'], ['1'], ['later']])
  })

  test('and those behind it that give up leave the others in their order', async () => {
    const { turns, alone, entered, since } = await waiting('held', 'held', 'held', 'held')
    turns.enter(list('too', ['everybody', 'held']))
    entered[1]?.giveUp()
    entered[3]?.giveUp()
    expect(since()).toEqual([])
    await alone[0]?.end()
    expect(since()).toEqual([['2']])
  })

  test('counts those behind it', async () => {
    const { turns } = await waiting('held')
    for (let i = 0; i < 1_000; i++) turns.enter(list(`${i}`, ['everybody', 'held']))
    expect(() => turns.enter(list('one more', ['held']))).toThrow('1000 calls of this key')
    expect(turns.enter(list('other', ['everybody', 'own']))).toMatchObject({ isBehind: false })
  })
})
