import { drizzle } from 'drizzle-orm/node-postgres'
import { type Database, Ratelimit } from '../../src/index.ts'
import { bareUpdate } from '../contenders/bare-update.ts'
import { makeKeys, type Opened, PLENTY } from '../contenders/contender.ts'
import { defaultLimiter, openedBy, THIS_PACKAGE } from '../contenders/this-package.ts'
import { anyOf, keyNumbers } from '../measure.ts'
import { admitted, interleave } from '../rounds.ts'
import type { Connections } from '../server/connections.ts'
import { withNetwork } from '../server/network.ts'
import { type Bench, type Load, type Outcome, withDatabase } from './load.ts'

const KEYS = 1_000
export const ROUND_TRIPS_MS: readonly number[] = [0, 1, 5]

/**
 * What a network between the process and the server costs, and how many statements it should carry at once.
 */
export const NETWORK: readonly Load[] = [8, 64].flatMap((callers) =>
  ROUND_TRIPS_MS.map((roundTripMs) => ({
    name: networkLoad(roundTripMs, callers),
    title: `${callers} callers, ${roundTripMs} ms of network`,
    run: (bench: Bench) => overNetwork(bench, roundTripMs, callers),
  })),
)

export function networkLoad(roundTripMs: number, callers: number): string {
  return `network-${roundTripMs}-ms-${callers}-callers`
}

function overNetwork(bench: Bench, roundTripMs: number, callers: number): Promise<Outcome> {
  return withDatabase(bench, (_direct, url) =>
    withNetwork(url, roundTripMs, async (connections) => {
      const { rounds } = bench.settings
      const opened = Object.entries(await contendersOn(connections))
      for (const [name, limiter] of opened) {
        bench.progress.prepare(name)
        await makeKeys(limiter, keyNumbers(KEYS))
      }
      const work = { key: anyOf(KEYS), callers, serverCpu: bench.serverCpu }
      const entries = opened.map(([name, { check }]) => admitted(name, { ...work, check }, bench.settings))
      bench.progress.expect(rounds * entries.length)
      const measured = await interleave(entries, rounds, bench.progress)
      return { measured, baseline: THIS_PACKAGE, comparedBy: 'p50Ms' }
    }),
  )
}

async function contendersOn(connections: Connections): Promise<Record<string, Opened>> {
  const db = drizzle({ client: connections.pool })
  const withConnections = [1, 2, 4, 8].map((count) => [
    `drizzle-ratelimit, connections: ${count}`,
    openedBy(limiterWith(db, { connections: count })),
  ])
  return {
    [THIS_PACKAGE]: openedBy(defaultLimiter(db, 'default')),
    ...Object.fromEntries(withConnections),
    [bareUpdate.name]: await bareUpdate.open(connections),
  }
}

function limiterWith(db: Database, options: { readonly connections: number }): Ratelimit {
  const limiter = Ratelimit.tokenBucket(PLENTY, '1h', PLENTY)
  return new Ratelimit({ db, limiter, prefix: `connections ${options.connections}`, ...options })
}
