import type { SettledSpending, SpendOptions, Spent } from 'drizzle-ratelimit/quota'

// What does not compile of a cost over several limits.

declare const spent: Spent

export const part: SpendOptions = { rate: 4000, atLeast: 1 }
if (spent.success) {
  const settled: Promise<SettledSpending> = spent.commit(9000, { debt: 'first' })
  settled.then(({ granted }) => granted.length)
  // @ts-expect-error The debt is of the first or the last one.
  spent.commit(9000, { debt: 'second' })
}
// After a denial there is nothing to settle, and a release does nothing.
if (!spent.success) spent.release()
// @ts-expect-error It may have been denied.
spent.commit(9000)
