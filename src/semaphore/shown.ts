import { groupBy } from '../kernel/base/arrays.ts'
import { mustHave } from '../kernel/database/rows.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { readingIn, readRows } from '../shared/read-rows.ts'
import { inDigits, inLength } from '../shared/readable.ts'
import type { Held, KeysAsked, ShownKey, ShownKeys, ShownParts } from '../shared/shown.ts'
import { holdersOf } from './holders.ts'
import type { Plan } from './plan.ts'
import { heldSlotsStatement } from './sql/held.ts'

/** More slots are not read to find the keys that have most in use. */
const MAX_READ = 20_000

/** What a semaphore shows to operators: its slots in use, and who holds them. */
export function shownOf(checker: Checker, { limit, leaseMs }: Plan): ShownParts {
  const ofKey = async (key: string): Promise<Held[]> =>
    (await holdersOf(checker, key, undefined)).map(({ slot, since, expires: until }) => {
      return { key, name: String(slot), since, until }
    })
  return {
    rule: `${inDigits(limit)} at once, each for ${inLength(leaseMs)} unless it is extended`,
    keys: async (asked) => keysOf(await heldSlots(checker, asked, MAX_READ), limit, asked),
    look: async (key) => keyOf(key, await ofKey(key), limit),
    holdings: [
      {
        name: 'slots',
        title: 'Slots in use',
        columns: ['Slot', undefined],
        list: async ({ key, size, now }) =>
          key === undefined ? heldSlots(checker, { part: '', now }, size) : ofKey(key),
      },
    ],
  }
}

async function heldSlots(
  checker: Checker,
  { part, now }: Pick<KeysAsked, 'part' | 'now'>,
  size: number,
): Promise<Held[]> {
  // An empty part is in every key.
  const values = { clock: now, part, size }
  return (await readRows(readingIn(checker), 'held slots', heldSlotsStatement, values)).map((row) => ({
    key: String(mustHave(row['key'])),
    name: String(Number(mustHave(row['slot']))),
    // A fence begins with the time of its lease.
    since: Math.floor(exactNumber(row['fence']) / 1_000),
    until: exactNumber(row['ends']),
  }))
}

function keysOf(held: readonly Held[], limit: number, { offset, size }: KeysAsked): ShownKeys {
  const keys = groupBy(held, ({ key }) => key).flatMap((own) => keyOf(own[0]?.key ?? '', own, limit) ?? [])
  const nearest = keys.toSorted((one, other) => other.used - one.used || (one.key < other.key ? -1 : 1))
  return {
    keys: nearest.slice(offset, offset + size),
    total: keys.length,
    full: keys.filter(({ left }) => left === 0).length,
    cut: held.length >= MAX_READ ? `the ${inDigits(MAX_READ)} slots that end first` : undefined,
  }
}

/** Undefined if no slot is in use. */
function keyOf(key: string, held: readonly Held[], limit: number): ShownKey | undefined {
  if (held.length === 0) return undefined
  const ends = held.map(({ until }) => until ?? Number.NaN)
  // A slot that a transaction holds ends with it, and nobody knows when.
  const reset = ends.includes(Number.NaN) ? undefined : Math.max(...ends)
  return { key, used: held.length, limit, left: Math.max(limit - held.length, 0), reset }
}
