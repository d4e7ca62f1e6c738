import { entryOf, type Recorded, record } from '../check/record.ts'
import type { Connection } from '../database/connection.ts'
import { purposeOf } from '../options/validate.ts'
import type { Decision } from '../runtime/call.ts'
import { ID_PREFIX, RESERVED_PREFIX } from '../statements/own-prefixes.ts'
import type { RowRequest } from './add-up.ts'
import { found, isInGroup } from './enough.ts'
import { nameIn } from './names.ts'
import { afterRefund, isLate, isLook, partsOf } from './parts.ts'
import type { Found, List } from './sending.ts'
import { makes } from './shape.ts'

/** Runs the statement of lists, and hands out the entries of those that it has charged. */
export function recordLists<T>(
  { connection, rows }: Pick<List, 'connection' | 'rows'>,
  run: (own: Connection) => Promise<T>,
  charged: (result: T) => Iterable<readonly [List, Found]>,
): Promise<T> {
  const isBrief = rows.some(makes)
  const recordedBy = (result: T) => [...charged(result)].flatMap(([list, found]) => recordedIn(list, found))
  return record({ connection, isBrief, run, recordedBy })
}

function recordedIn(list: List, { isDone, looks }: Found): Recorded[] {
  if (!isDone) return []
  const id = idIn(list.rows)
  return list.rows.flatMap((row) => {
    const { ledger, prefix } = row.namespace
    if (!ledger || isLook(row)) return []
    const look = found(looks, row)
    const parts = isInGroup(list.groups, row) ? [paidBy(row, look)] : partsOf(row, look)
    return parts.flatMap((call, place): Recorded[] => {
      // A refund that comes too late changes nothing.
      if (call.rate < 0 && isLate(row, look)) return []
      // The charge finds the row as the refund left it.
      const { state } = place > 0 ? afterRefund(row, look) : look
      const decision = { ...look, state, granted: 1 }
      const entry = entryOf({ call, decision, place: 0 }, { ...ledger, prefix, id, kind: row.kind })
      return entry ? [{ onEntries: ledger.onEntries, entry }] : []
    })
  })
}

/** The id that the list uses up, or the name of its estimate. */
function idIn(rows: readonly RowRequest[]): string | undefined {
  const under = (prefix: string) => rows.find(({ namespace }) => namespace.prefix.startsWith(prefix))?.key
  const named = under(RESERVED_PREFIX)
  return named === undefined ? under(ID_PREFIX) : nameIn(named).id
}

/** The request for what the row has paid of its group's rate. */
function paidBy(row: RowRequest, { share = 0 }: Decision): RowRequest {
  return { ...row, rate: share, atLeast: null, purpose: purposeOf(share) }
}
