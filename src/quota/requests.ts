import type { CreditRequest, LimitRequest } from '../limit-all.ts'

/** One of the calls of `reserveAll`. */
export type ReserveRequest = Omit<LimitRequest, 'force'>

/** The credits of a key, as one of the calls of `reserveAll`. */
export type CreditReserveRequest = Omit<CreditRequest, 'force'>

/** One of the limits of `spend` or `settle`. */
export type SpendRequest = Omit<LimitRequest, 'rate' | 'force' | 'atLeast'>

/** The credits of a key, as one of the limits of `spend` or `settle`. */
export type CreditSpendRequest = Omit<CreditRequest, 'rate' | 'force' | 'atLeast'>
