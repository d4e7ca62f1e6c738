import { inRows } from '../estimates/in-rows.ts'
import { readOpen } from '../estimates/read-open.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { calledOn } from '../kernel/engine/handles.ts'
import { toHex } from '../shared/hex-id.ts'
import { readingIn } from '../shared/read-rows.ts'
import { inDigits } from '../shared/readable.ts'
import type { Act, FieldValues, Holding } from '../shared/shown.ts'
import { type KeyRows, presentPlan } from './keys.ts'

/** The name of what this lists. */
export const RESERVATIONS = 'reservations'

/** The open reservations of a limiter. */
export function openReservationsOf(checker: Checker): Holding {
  return {
    name: RESERVATIONS,
    title: 'Open reservations',
    columns: ['Name', 'Estimate'],
    list: async (asked) => {
      const open = await readOpen(readingIn(checker), asked)
      return open.map(({ key, id, rate, expires }) => ({ key, name: id, amount: rate, until: expires }))
    },
  }
}

/** The row of one limit does not say whether there are others. */
const OF_SEVERAL =
  'If it was made in several limits together, this ends its part in this limit only, and your application can not settle the other parts by its name any more.'

/** Settles and releases reservations, as their names are stored. */
export function reservationActs(rows: KeyRows): readonly Act[] {
  const settle = async (key: string, { held = '' }: FieldValues, actual: number, how: string) => {
    const limiter = rows.limiterOf && (await presentPlan(rows.limiterOf, key))
    const each = await calledOn(rows.handle, key, { rate: 0, limiter })
    const named = { each, row: `${key}/${toHex(held)}`, hasPlan: false }
    const settled = inRows([named])
    const { repeated } = await settled({ costs: { each: [actual] }, limiters: [limiter] }, undefined)
    const change = `The reservation ${held} was ${how}.`
    return repeated ? { change, now: 'That was done before, and is not done again.' } : { change }
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
        return settle(key, values, cost, `settled with ${inDigits(cost)}`)
      },
    },
    {
      name: 'release',
      needs: 'settle',
      label: 'Release',
      about: `Give the whole estimate back. ${OF_SEVERAL}`,
      fields: [],
      of: RESERVATIONS,
      run: (key, values) => settle(key, values, 0, 'released'),
    },
  ]
}
