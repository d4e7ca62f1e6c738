import { onFirstUse } from '../base/on-first-use.ts'
import type { Connection } from '../database/connection.ts'
import { MAX_ROWS } from './add-up.ts'
import { askList, type How, makeRows as makeAll, removeEmpty as removeAllEmpty } from './list.ts'
import { isLook } from './parts.ts'
import type { Found, List } from './sending.ts'

const rowByRow = /* @__PURE__ */ onFirstUse(() => import('./row-by-row.ts'))

/** Charges the list, or only looks at it: by one statement, unless it has many rows, or on several servers. */
export async function sendList(list: List, how: How): Promise<Found> {
  const isOne = list.rows.length <= MAX_ROWS && (reachesAll(list) || (await isInOnePlace(list)))
  const ask = isOne ? askList : (await rowByRow()).askRowByRow
  if (how === 'looks' || !isRecorded(list)) return ask(list, how)
  const { recordLists } = await recording()
  const run = (connection: Connection) => ask({ ...list, connection }, how)
  return recordLists(list, run, (found) => [[list, found]])
}

export const recording: () => Loaded | Promise<Loaded> = /* @__PURE__ */ onFirstUse(
  () => import('./record-lists.ts'),
)

type Loaded = typeof import('./record-lists.ts')

/** Whether one of the limiters has `onEntries`. */
export function isRecorded({ rows }: Pick<List, 'rows'>): boolean {
  return rows.some(({ namespace }) => namespace.ledger !== undefined)
}

/** Whether one statement can charge the rows, wherever they are. */
function reachesAll({ rows }: Pick<List, 'rows'>): boolean {
  return rows.every(({ table }) => table.reachesAllRows)
}

async function isInOnePlace({ rows, connection }: List): Promise<boolean> {
  const places = new Set<string | undefined>()
  for (const { table, key } of rows) {
    const { steps } = await table.store()
    places.add(await steps?.placeOf(connection.db, key))
  }
  return places.size === 1
}

/**
 * Inserts the missing rows, and returns how many there were. If it `waits`, it also locks all rows, in the
 * order of every list.
 */
export async function makeRows(list: List, waits: boolean): Promise<number> {
  if (reachesAll(list)) return makeAll(list, waits)
  let made = 0
  for (const row of list.rows.filter((each) => !isLook(each))) {
    const { table, namespace, key } = row
    const { steps } = await table.store()
    if (steps) {
      list.onSend(false, waits)
      made += await steps.insertForList(list.connection, namespace.prefix, key, waits)
    } else made += await makeAll({ ...list, rows: [row] }, waits)
  }
  return made
}

/** Removes the rows that were inserted and have no state, because nothing was taken from them. */
export async function removeEmpty(list: List): Promise<void> {
  if (reachesAll(list)) return removeAllEmpty(list)
  for (const row of list.rows.filter((each) => !isLook(each))) {
    const { steps } = await row.table.store()
    if (steps) await steps.removeEmpty(list.connection, row.namespace.prefix, [row.key])
    else await removeAllEmpty({ ...list, rows: [row] })
  }
}
