import type { Allowed, Limiter, Ratelimit, ReservedPart } from 'drizzle-ratelimit'
import type { Quota, ReserveOptions } from 'drizzle-ratelimit/quota'
import type { Credits } from '../../../src/credits/index.ts'

// What does not compile of reservations with a name.

declare const api: Ratelimit
declare const tokens: Quota
declare const credits: Credits<true>
declare const PLAN: Limiter

export const named: ReserveOptions = { rate: 4000, id: 'job', expires: '10m', atLeast: 1 }
export const settled: Promise<Allowed> = tokens.settle({ key: 'org:1', id: 'job' }, 3120)
export const part: Promise<ReservedPart> = tokens.reserve('org:1', {
  rate: 4000,
  atLeast: 1,
  id: 'job',
  expires: '10m',
})

// @ts-expect-error A name needs an end.
export const endless: ReserveOptions = { rate: 4000, id: 'job' }
// @ts-expect-error An end needs a name.
export const unnamed: ReserveOptions = { rate: 4000, expires: '10m' }
// @ts-expect-error A name is charged once by itself.
export const twice: ReserveOptions = { id: 'job', expires: '10m', once: { id: 'job', for: '1d' } }
// @ts-expect-error An id alone is no name.
export const bare: Promise<Allowed> = tokens.settle('job', 3120)
// @ts-expect-error A name has a key.
export const keyless: Promise<Allowed> = tokens.settle({ id: 'job' }, 3120)
// @ts-expect-error Only a quota has names.
void api.reserve('org:1', { id: 'job', expires: '10m' })
// @ts-expect-error
void api.settle({ key: 'org:1', id: 'job' }, 1)
// @ts-expect-error
void api.changePlan('org:1', { to: PLAN })
export const granted: Promise<Allowed> = credits.settle({ key: 'org:1', id: 'job' }, 1)
// @ts-expect-error Credits have no plans.
export const planned: Promise<Allowed> = credits.settle({ key: 'org:1', id: 'job' }, 1, { limiter: PLAN })
