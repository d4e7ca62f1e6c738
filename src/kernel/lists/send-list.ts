import { onFirstUse } from '../base/once.ts'
import type { Connection } from '../database/connection.ts'
import { areInOnePlace, reachesAll } from '../store/empty-rows.ts'
import { askList } from './list.ts'
import { type Found, type List, MAX_ROWS } from './sending.ts'
import type { How } from './shapes.ts'

const rowByRow = /* @__PURE__ */ onFirstUse(() => import('./row-by-row.ts'))

/** Charges the list, or only looks at it: by one statement, unless it has many rows, or on several servers. */
export async function sendList(list: List, how: How): Promise<Found> {
  const isOne =
    list.rows.length <= MAX_ROWS &&
    (reachesAll(list.rows) || (await areInOnePlace(list.rows, list.connection.db)))
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

/** Whether one of the limiters has a ledger. */
export function isRecorded({ rows }: Pick<List, 'rows'>): boolean {
  return rows.some(({ namespace }) => namespace.ledger !== undefined)
}
