import type { TestDatabase } from '../../support/databases.ts'

// Events that several processes try to charge, each once.

export const EVENTS = 300
const KEYS = 6
/** Less than all events take. */
export const TOKENS = 120

export const PREFIX = 'events'

/** What the processes were told. */
export interface Told {
  /** The events that a call of the process has charged. */
  readonly charged: number[]
  /** The events that a call of the process has found charged. */
  readonly repeated: number[]
}

interface Share {
  readonly key: string
  readonly rate: number
}

/** What an event takes, of each of its keys. Every third event takes from two. */
export function sharesOf(event: number): readonly Share[] {
  const rate = 1 + (event % 4)
  const keys = event % 3 === 0 ? [event, event + 1] : [event]
  return keys.map((key) => ({ key: `key ${key % KEYS}`, rate }))
}

/** What is wrong with the rows, or with what the processes were told. */
export async function problemsOf(database: TestDatabase, all: readonly Told[]): Promise<readonly string[]> {
  const rows = await database.rows(
    `select prefix, key, count::int from rate_limit_ephemeral where prefix like $1`,
    [`%${PREFIX}`],
  )
  const ids = rows.filter(({ prefix, count }) => prefix !== PREFIX && Number(count) === 1)
  const stored = new Set(ids.map(({ key }) => Number(key)))
  const used = new Map(
    rows.flatMap(({ prefix, key, count }) => (prefix === PREFIX ? [[key, Number(count)]] : [])),
  )
  const due = new Map<string, number>()
  for (const { key, rate } of [...stored].flatMap(sharesOf)) due.set(key, (due.get(key) ?? 0) + rate)
  const charged = all.flatMap((told) => told.charged)
  const known = new Set([...charged, ...all.flatMap((told) => told.repeated)])
  return [
    ...[...due]
      .filter(([key, sum]) => used.get(key) !== sum)
      .map(([key, sum]) => `${key} should have ${sum} used`),
    ...[...used]
      .filter(([, count]) => Number(count) > TOKENS)
      .map(([key]) => `${key} has more than its limit`),
    ...charged
      .filter((event, place) => charged.indexOf(event) < place)
      .map((event) => `${event} was charged twice`),
    ...[...known].filter((event) => !stored.has(event)).map((event) => `${event} was not charged`),
  ]
}
