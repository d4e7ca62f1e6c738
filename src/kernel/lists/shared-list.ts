import { onceFor } from '../base/once.ts'
import type { QueuedList } from '../queue/waiting-list.ts'
import type { Watch } from '../queue/waits.ts'
import type { ListRow } from '../sql/list-row.ts'
import type { Namespace } from '../store/call.ts'
import { nameOfGroups, payersIn } from './list.ts'
import { type Found, type List, mayNeedSeveral } from './sending.ts'
import { nameOfShape } from './shape.ts'
import { shapesOf } from './shapes.ts'

/** A list outside of a caller's transaction. */
export interface SentList {
  readonly list: List
  /** That of the limiter whose time bounds the list. */
  readonly watch: Watch
  /** Awaited before the first statement. */
  readonly ensures: readonly (() => Promise<void>)[]
  /** What the last statement has found. Undefined if none was sent. */
  found: Found | undefined
  isOver(): boolean
  /** Called when its statements have ended, which may be after the call has timed out. */
  ended(): void
}

/** A list that may share a statement with others. */
export interface SharedList extends SentList, QueuedList {
  readonly shapes: readonly ListRow[]
}

/** The list in the form in which it waits for its turn. */
export function queued({ list, watch, ensures, isOver, ended }: SentList): SharedList {
  const { rows, groups, connection, commit } = list
  const shapes = shapesOf(list, 'skips')
  const about = rows.map(
    (row, place) =>
      // A shared statement has an answer only if the row exists, whether the list needs it or not.
      `${nameOfShape(row, shapes[place] as ListRow, true)} ${namespaceNumber(row.namespace)}`,
  )
  return {
    list,
    watch,
    shapes,
    ensures,
    isOver,
    ended,
    found: undefined,
    rows: rows.map(({ row }) => row),
    kind: mayNeedSeveral(rows)
      ? `alone ${++lastId}`
      : `${connection.keeping.wish} ${commit} ${nameOfGroups(payersIn(groups, rows))} ${about.join()}`,
    shares: rows.map((row, place) =>
      groups.length === 0 && mayBeCommon(shapes[place] as ListRow)
        ? `${row.paidWindowStart} ${row.limiter.signature}`
        : undefined,
    ),
  }
}

let lastId = 0

/** A number for each namespace. Lists with different namespaces may have different clocks. */
const namespaceNumber = onceFor((_: Namespace) => ++lastId)

/** Whether lists may have the row in common. */
function mayBeCommon({ does, insertsIfMissing }: ListRow): boolean {
  return does !== 'look' && !insertsIfMissing
}
