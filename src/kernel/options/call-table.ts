import { checkOptions, checkSwitch, type NamesOf } from '../base/check-options.ts'
import type {
  AllOptions,
  BlockOptions,
  CallOptions,
  ChangePlanOptions,
  LimitOptions,
  Once,
  OnceOptions,
  RefundOptions,
  Requested,
  TxOptions,
} from './calls.ts'
import { checkTx, ofQuota } from './checks.ts'
import type { ReserveAllOptions, ReserveOptions, SpendOptions } from './reserve.ts'

// The options of each call, with their checks. An option that has true here is checked by the call itself: its
// check depends on the limit or the key, or gives the value in another form.

export const tx: NamesOf<TxOptions> = { tx: checkTx }
export const call: NamesOf<CallOptions> = { ...tx, limiter: true }
const id: NamesOf<Once> = { id: true, for: true }
export const once: NamesOf<OnceOptions> = { once: (given) => checkOptions(given, id, 'once') }
export const limitAll: NamesOf<AllOptions> = { ...tx, ...once, wait: true, signal: true }
const charge = { ...tx, ...once, rate: true, atLeast: true } as const
export const creditLimit: NamesOf<Omit<LimitOptions, 'limiter'>> = { ...charge, force: checkSwitch }
export const limit: NamesOf<LimitOptions | RefundOptions> = { ...call, ...creditLimit, start: true }
export const blockUntilReady: NamesOf<BlockOptions> = {
  ...once,
  ...{ rate: true, atLeast: true, limiter: true, signal: true },
}
export const changePlan: NamesOf<ChangePlanOptions> = { ...tx, from: true, to: true }
export const reserveAll: NamesOf<ReserveAllOptions> = { ...tx, ...once, id: true, expires: true }
export const spend: NamesOf<SpendOptions> = { ...charge, ...reserveAll }
export const reserve: NamesOf<ReserveOptions> = { ...call, ...spend }
export const plainReserve: NamesOf<ReserveOptions> = { ...call, ...charge, id: ofQuota, expires: ofQuota }

export const spendRequest: NamesOf<Omit<Requested, 'force' | 'rate' | 'atLeast'>> = {
  ratelimit: true,
  key: true,
  limiter: true,
}
export const reserveRequest: NamesOf<Omit<Requested, 'force'>> = {
  ...spendRequest,
  rate: true,
  atLeast: true,
}
export const limitRequest: NamesOf<Requested> = { ...reserveRequest, force: checkSwitch }
