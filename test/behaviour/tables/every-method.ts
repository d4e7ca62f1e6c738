import { limitAll, type Ratelimit } from '../../../src/index.ts'

/** A call of each method that reaches the database. */
export const everyMethod: readonly (readonly [
  name: string,
  call: (ratelimit: Ratelimit, key: string) => Promise<unknown>,
])[] = [
  ['limit', (ratelimit, key) => ratelimit.limit(key)],
  [
    'limit, many keys at once',
    (ratelimit, key) => Promise.all(['', ' 2'].map((end) => ratelimit.limit(key + end))),
  ],
  ['limitAll', (ratelimit, key) => limitAll([{ ratelimit, key }])],
  ['reserve', (ratelimit, key) => ratelimit.reserve(key)],
  ['getRemaining', (ratelimit, key) => ratelimit.getRemaining(key)],
  ['blockUntilReady', (ratelimit, key) => ratelimit.blockUntilReady(key, 0)],
  ['resetUsedTokens', (ratelimit, key) => ratelimit.resetUsedTokens(key)],
  ['cleanup', (ratelimit) => ratelimit.cleanup()],
]
