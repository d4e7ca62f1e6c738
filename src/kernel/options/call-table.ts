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
import type { CreditGrantOptions, CreditLimitOptions, GrantOptions } from './grants.ts'
import type { CreditReserveOptions, ReserveAllOptions, ReserveOptions, SpendOptions } from './reserve.ts'

// The options of each call, with their checks. An option that has true here is checked by the call itself: its
// check depends on the limit or the key, or gives the value in another form.

export const tx: NamesOf<TxOptions> = { tx: checkTx }
export const call: NamesOf<CallOptions> = { ...tx, limiter: true }
const id: NamesOf<Once> = { id: true, for: true }
const once: NamesOf<OnceOptions> = { once: (given) => checkOptions(given, id, 'once') }
export const limitAll: NamesOf<AllOptions> = { ...tx, ...once, wait: true, signal: true }
export const grant: NamesOf<GrantOptions> = { ...call, ...once }
const charge = { ...tx, ...once, rate: true, atLeast: true } as const
export const limit: NamesOf<LimitOptions | RefundOptions> = {
  ...call,
  ...charge,
  force: checkSwitch,
  start: true,
}
export const blockUntilReady: NamesOf<BlockOptions> = {
  ...{ rate: true, atLeast: true, limiter: true, signal: true },
}
export const changePlan: NamesOf<ChangePlanOptions> = { ...tx, from: true, to: true }
export const reserveAll: NamesOf<ReserveAllOptions> = { ...tx, ...once, id: true, expires: true }
export const spend: NamesOf<SpendOptions | CreditReserveOptions> = { ...charge, ...reserveAll }
export const reserve: NamesOf<ReserveOptions> = { ...call, ...spend }
export const plainCreditReserve: NamesOf<CreditReserveOptions> = { ...charge, id: ofQuota, expires: ofQuota }
export const plainReserve: NamesOf<ReserveOptions> = { ...call, ...plainCreditReserve }

export const creditLimit: NamesOf<CreditLimitOptions> = { ...charge, force: checkSwitch }
export const creditGrant: NamesOf<CreditGrantOptions> = { ...tx, id: true, expires: true, priority: true }

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
