import type { ListRow, Pays } from '../sql/list-row.ts'
import { tableNameOf, tablesOf } from '../store/empty-rows.ts'
import { isLook } from './parts.ts'
import type { Group, List, RowRequest } from './sending.ts'
import { insertsIfMissing, isPlain, shapeOf } from './shape.ts'

// The rows of a list in the form that its statement needs.

/** How a statement for a list treats rows that others hold. If it `looks`, it locks and charges nothing. */
export type How = 'looks' | 'skips' | 'waits'

/**
 * The shapes of the rows. Two declarations of one table count as one.
 *
 * @param isMade Whether the statement inserts the charged row at a place if it is missing. Default: if the row
 * is usually missing.
 */
export function shapesOf(
  { rows, groups, notes }: Pick<List, 'rows' | 'groups' | 'notes'>,
  how: How,
  isMade?: (place: number) => boolean,
): ListRow[] {
  const [first] = rows
  const tables = rows.every(({ table }) => table === first?.table) ? undefined : tablesOf(rows)
  const isMadeFirst = madeBefore(rows, how)
  const shapes = rows.map((row, place) => {
    const { table } = tables?.get(tableNameOf(row)) ?? row.table
    const plain = shapeOf(row, table, how === 'looks', paysOf(groups, row))
    const insertsIfMissing = plain.insertsIfMissing
      ? !isMadeFirst(row)
      : isMade?.(place) === true && isPlain(plain)
    if (how === 'looks' || !opens(row))
      return insertsIfMissing === plain.insertsIfMissing ? plain : { ...plain, insertsIfMissing }
    const noted = notes.get(row) ?? []
    return { ...plain, insertsIfMissing, notes: noted.map((each) => (each ? rows.indexOf(each) : -1)) }
  })
  if (!shapes.some(({ insertsIfMissing }) => insertsIfMissing)) return shapes
  const made = shapes.filter(({ insertsIfMissing }) => insertsIfMissing).length
  return shapes.map((shape) => {
    const keepsVersion = shape.does !== 'look' && (made > 1 || !shape.insertsIfMissing)
    return keepsVersion ? { ...shape, keepsVersion } : shape
  })
}

/** Whether it makes the row of an estimate, which notes what others have paid. */
export function opens({ limiter }: RowRequest): boolean {
  return limiter.algorithm.sql.note !== undefined && limiter.limit > 0
}

/** What the row pays of the rate of its group. Undefined if it pays its own rate. */
function paysOf(groups: readonly Group[], row: RowRequest): Pays | undefined {
  const group = groups.find(({ order }) => order.includes(row))
  return group && (group.pays?.get(row) ?? 'available')
}

/**
 * Which rows are inserted by a statement of their own if they are missing, before the list is charged.
 *
 * A statement that inserts several rows fails if another transaction was faster, so that none of them stays. A
 * statement that waits must not fail, because it may be in a caller's transaction.
 */
export function madeBefore(rows: readonly RowRequest[], how: How): (row: RowRequest) => boolean {
  const mayMake = how !== 'waits' || rows.filter((row) => insertsIfMissing(row) && !isLook(row)).length < 2
  return (row) => !isLook(row) && !(insertsIfMissing(row) && mayMake)
}
