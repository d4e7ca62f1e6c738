import { drizzle } from 'drizzle-orm/node-postgres'
import { Ratelimit } from '../../src/index.ts'
import { prefetch } from '../../src/prefetch/index.ts'
import { Quota } from '../../src/quota/index.ts'
import { type Contender, PLENTY } from '../contenders/contender.ts'
import { openedBy } from '../contenders/this-package.ts'
import { callersOf } from './calls.ts'
import type { Bench, Load } from './load.ts'
import { direct, GROWING } from './prefetch.ts'

/** A quota in the durable table. */
function quotaOf(name: string, synchronousCommit: boolean): Contender {
  return {
    name,
    async open({ pool }) {
      const quota = new Quota({
        ...{ db: drizzle({ client: pool }), limiter: Ratelimit.fixedWindow(PLENTY, '1d'), prefix: name },
        synchronousCommit,
        use: name.endsWith(GROWING) ? [prefetch({ tokens: 1_000, for: '10s', mayLose: 1_000 })] : [],
      })
      return { ...openedBy(quota), close: () => quota.close() }
    },
  }
}

const QUOTAS = ['Quota', 'Quota, synchronousCommit'].flatMap((name, place) =>
  ['', `, ${GROWING}`].map((more) => quotaOf(name + more, place === 1)),
)

/** What is billed, in rows that survive a crash of the server, with and without waiting for the disk. */
export const BILLED: readonly Load[] = [1, 64].flatMap((callers) =>
  [1_000, 1].map((keys) => ({
    name: `prefetch-quota-${callers}-${keys}`,
    title: `prefetch of a Quota, ${callersOf(callers)}, ${keys === 1 ? '1 key' : '1,000 keys'}`,
    run: (bench: Bench) =>
      direct(bench, { callers, keys, who: QUOTAS, comparedBy: callers === 1 ? 'p50Ms' : 'perSecond' }),
  })),
)
