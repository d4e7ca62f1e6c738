import type { Connection } from '../database/connection.ts'
import { ID_PREFIX, RESERVED_PREFIX } from '../sql/own-prefixes.ts'
import type { Recorded } from '../store/entry.ts'
import { found } from './enough.ts'
import { isLook, partsOf } from './parts.ts'
import type { Found, List, RowRequest } from './sending.ts'
import { insertsIfMissing } from './shape.ts'

/** Runs the statement of lists, and hands out the entries of those that it has charged. */
export function recordLists<T>(
  { connection, rows }: Pick<List, 'connection' | 'rows'>,
  run: (own: Connection) => Promise<T>,
  charged: (result: T) => Iterable<readonly [List, Found]>,
): Promise<T> {
  const isBrief = rows.some(insertsIfMissing)
  const recordedBy = (result: T) => [...charged(result)].flatMap(([list, found]) => recordedIn(list, found))
  const ledger = rows.find(({ namespace }) => namespace.ledger)?.namespace.ledger
  return ledger ? ledger.record({ connection, isBrief, run, recordedBy }) : run(connection)
}

function recordedIn(list: List, { isDone, looks }: Found): Recorded[] {
  if (!isDone) return []
  const id = idIn(list.rows)
  return list.rows.flatMap((row) => {
    const { ledger } = row.namespace
    if (!ledger || isLook(row)) return []
    return partsOf(row, found(looks, row)).flatMap((part) => ledger.recorded({ ...part, id, kind: row.kind }))
  })
}

/** The id that the list uses up, or the name of its estimate. */
function idIn(rows: readonly RowRequest[]): string | undefined {
  const under = (prefix: string) => rows.find(({ namespace }) => namespace.prefix.startsWith(prefix))
  const named = under(RESERVED_PREFIX)
  return named ? named.limiter.rowIn?.(named.key).name : under(ID_PREFIX)?.key
}
