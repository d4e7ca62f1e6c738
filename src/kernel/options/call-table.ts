import { checkOptions, checkSwitch, type NamesOf } from '../base/check-options.ts'
import type {
  AllOptions,
  BlockOptions,
  CallOptions,
  LimitOptions,
  Once,
  OnceOptions,
  RefundOptions,
  TxOptions,
} from './calls.ts'
import { checkTx } from './checks.ts'

// The options of each call, with their checks. An option that has true here is checked by the call itself: its
// check depends on the limit or the key, or gives the value in another form.

export const tx: NamesOf<TxOptions> = { tx: checkTx }
export const call: NamesOf<CallOptions> = { ...tx, limiter: true }
const id: NamesOf<Once> = { id: true, for: true }
export const once: NamesOf<OnceOptions> = { once: (given) => checkOptions(given, id, 'once') }
export const limitAll: NamesOf<AllOptions> = { ...tx, ...once, wait: true, signal: true }
export const charge: NamesOf<Omit<LimitOptions, 'limiter' | 'force'>> = {
  ...{ ...tx, ...once, rate: true, atLeast: true },
}
export const limit: NamesOf<LimitOptions | RefundOptions> = {
  ...{ ...call, ...charge, force: checkSwitch, start: true },
}
export const blockUntilReady: NamesOf<BlockOptions> = {
  ...once,
  ...{ rate: true, atLeast: true, limiter: true, signal: true },
}
