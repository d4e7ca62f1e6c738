import { CLOSING, openedIn } from '../estimates/estimate-row.ts'
import { inRows } from '../estimates/in-rows.ts'
import { nameIn } from '../estimates/names.ts'
import { openStatement } from '../estimates/sql/estimates.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { distinct } from '../kernel/database/rows.ts'
import { runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { calledOn } from '../kernel/engine/handles.ts'
import { RESERVED_PREFIX } from '../kernel/sql/own-prefixes.ts'
import { toHex } from '../shared/hex-id.ts'
import { stateIn } from '../shared/number-columns.ts'
import { inDigits } from '../shared/readable.ts'
import type { Act, FieldValues, Holding } from '../shared/shown.ts'
import type { KeyRows } from './keys.ts'

/** The name of what this lists. */
export const RESERVATIONS = 'reservations'

/** The open reservations of a limiter. */
export function openReservationsOf({ rows: { connection, table, namespace } }: Checker): Holding {
  return {
    name: RESERVATIONS,
    title: 'Open reservations',
    columns: ['Name', 'Estimate'],
    list: async ({ key, size }) => {
      const isOfKey = key !== undefined
      const statement = kept(table.statements, `open ${isOfKey}`, () => openStatement(table.table, isOfKey))
      const values = { prefix: RESERVED_PREFIX + namespace.prefix, size, from: `${key}/`, to: `${key}/z` }
      const rows = distinct(await uncharged(runOnce(connection, statement, values)), 'key', size)
      return rows.flatMap((row) => {
        const { key: of, id: name } = nameIn(String(row['key']))
        const opened = openedIn(stateIn(row, CLOSING))
        return opened ? [{ key: of, name, amount: opened.rate, until: opened.endMs }] : []
      })
    },
  }
}

/** The row of one limit does not say whether there are others. */
const OF_SEVERAL =
  'If it was made in several limits together, this ends its part in this limit only, and your application can not settle the other parts by its name any more.'

/** Settles and releases reservations, as their names are stored. */
export function reservationActs(rows: KeyRows): readonly Act[] {
  const settle = async (key: string, { held = '' }: FieldValues, actual: number) => {
    const limiter = await rows.limiterOf?.(key)
    const each = await calledOn(rows.handle, key, { rate: 0, limiter })
    const named = { each, row: `${key}/${toHex(held)}`, hasPlan: false }
    const { repeated } = await inRows([named]).settle(
      { costs: { each: [actual] }, limiters: [limiter] },
      undefined,
    )
    return repeated ? { now: 'That was done before, and is not done again.' } : {}
  }
  return [
    {
      name: 'settle',
      needs: 'settle',
      label: 'Settle',
      about: `Charge the actual cost in place of the estimate. ${OF_SEVERAL}`,
      fields: [{ name: 'cost', label: 'Cost', of: 'cost' }],
      of: RESERVATIONS,
      run: async (key, values) => {
        const cost = Number(values['cost'])
        const now = await settle(key, values, cost)
        return { change: `The reservation ${values['held']} was settled with ${inDigits(cost)}.`, ...now }
      },
    },
    {
      name: 'release',
      needs: 'settle',
      label: 'Release',
      about: `Give the whole estimate back. ${OF_SEVERAL}`,
      fields: [],
      of: RESERVATIONS,
      run: async (key, values) => {
        const now = await settle(key, values, 0)
        return { change: `The reservation ${values['held']} was released.`, ...now }
      },
    },
  ]
}
