import { onFirstUse } from '../base/on-first-use.ts'
import type { Connection } from '../database/connection.ts'
import { MAX_ROWS } from './add-up.ts'
import { askList, type How, makeRows as makeAll, removeEmpty as removeAllEmpty } from './list.ts'
import { isLook } from './parts.ts'
import type { Found, List } from './sending.ts'

const rowByRow = /* @__PURE__ */ onFirstUse(() => import('./row-by-row.ts'))

/** Charges the list, or only looks at it: by one statement, unless it has many rows, or on several servers. */
export async function sendList(list: List, how: How): Promise<Found> {
  const isShort = list.rows.length <= MAX_ROWS
  const isOne = isShort && (!isDistributed(list) || (await isOnOneShard(list)))
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

/** Whether the list shares no statement with others. */
export function isSentAlone(list: Pick<List, 'rows'>): boolean {
  return list.rows.length > MAX_ROWS || isDistributed(list)
}

/** Whether Citus has distributed a table of the list. */
function isDistributed({ rows }: Pick<List, 'rows'>): boolean {
  return rows.some(({ table }) => table.distributed !== undefined)
}

async function isOnOneShard({ rows, connection }: List): Promise<boolean> {
  const places = new Set<string | undefined>()
  for (const { table, key } of rows) {
    const shards = await (await table.distributed?.())?.load(connection.db)
    places.add(shards && `${shards.of(key)} of ${shards.group}`)
  }
  return places.size === 1
}

/**
 * Inserts the missing rows, and returns how many there were. If it `waits`, it also locks all rows, in the
 * order of every list.
 */
export async function makeRows(list: List, waits: boolean): Promise<number> {
  if (!isDistributed(list)) return makeAll(list, waits)
  let made = 0
  for (const row of list.rows.filter((each) => !isLook(each))) {
    const { table, namespace, key } = row
    const distributed = await table.distributed?.()
    if (distributed) {
      list.onSend(false, waits)
      made += await (waits
        ? distributed.insertAndLock(list.connection, namespace.prefix, key)
        : distributed.insertAtOnce(list.connection, namespace.prefix, [key]))
    } else made += await makeAll({ ...list, rows: [row] }, waits)
  }
  return made
}

/** Removes the rows that were inserted and have no state, because nothing was taken from them. */
export async function removeEmpty(list: List): Promise<void> {
  if (!isDistributed(list)) return removeAllEmpty(list)
  for (const row of list.rows.filter((each) => !isLook(each))) {
    const distributed = await row.table.distributed?.()
    if (!distributed) await removeAllEmpty({ ...list, rows: [row] })
    else await distributed.removeEmpty(list.connection, row.namespace.prefix, [row.key])
  }
}
