import type { Allowed } from '../kernel/answers/results.ts'
import { checkOptions } from '../kernel/base/check-options.ts'
import { own } from '../kernel/errors.ts'
import { callsOf } from '../kernel/lists/requests.ts'
import type { CallOptions, Requested, TxOptions } from '../kernel/options/calls.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Costs, SettledAll } from './costs.ts'
import { inRows } from './in-rows.ts'
import { namedBy } from './named.ts'
import { spendRequest } from './options.ts'
import type { ReservationName, SettleOptions } from './settle-options.ts'
import * as SETTLING from './settle-options.ts'

// Estimates that are settled by their name, as their `commit` does.

/** Settles the reservation of one limit. */
export async function settleName(
  ratelimit: Requested['ratelimit'],
  name: ReservationName,
  actual: number,
  { limiter, tx }: CallOptions,
): Promise<Allowed> {
  checkOptions(name, SETTLING.reservation, 'The name of a reservation')
  checkOption(typeof name.key === 'string', 'settle needs the name of a reservation: { key, id }.')
  const requests = [{ ratelimit, key: name.key, limiter }]
  const { results } = await settleByName(requests, name.id, { each: [actual] }, tx)
  return results[0] as Allowed
}

/** Settles the reservations of several limits: each with a cost of its own, or all of them with one. */
export async function settleNames(
  requests: readonly Requested[],
  id: string,
  options: SettleOptions,
): Promise<SettledAll> {
  checkOptions(options, SETTLING.settle)
  const { actual, tx, debt } = options
  if (typeof actual === 'number')
    return settleByName(requests, id, { total: actual, debt: debt ?? 'last' }, tx)
  checkOption(Array.isArray(actual), 'settle needs the cost as `actual`, or a list of costs.')
  checkOption(debt === undefined, 'debt cannot be combined with a list of costs.')
  return settleByName(requests, id, { each: actual }, tx)
}

async function settleByName(
  requests: readonly Requested[],
  id: string,
  costs: Costs,
  tx: TxOptions['tx'],
): Promise<SettledAll> {
  const calls = await callsOf(requests, spendRequest, 0)
  const limiters = requests.map(({ limiter }) => limiter)
  const settle = inRows(await namedBy(calls, id, false))
  return await own(settle({ costs, limiters }, tx))
}
