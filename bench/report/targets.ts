import { BARE_UPDATE } from '../contenders/bare-update.ts'
import { BEFORE } from '../contenders/before.ts'
import { flexiblePostgres, flexibleRedis } from '../contenders/flexible.ts'
import { plainSequence } from '../contenders/plain-sequence.ts'
import { ON_POSTGRES_JS, THIS_PACKAGE } from '../contenders/this-package.ts'
import { LIMIT } from '../loads/calls.ts'
import { ALONE, BESIDE } from '../loads/cleanup.ts'
import { CLIFFS, CLIFFS_LOAD } from '../loads/cliffs.ts'
import { BLOCKED, MEMORY_STORE } from '../loads/denials.ts'
import { firstSecondInto, floodInto, MIN_ROWS } from '../loads/flood.ts'
import { BESIDE_HELD, FREE } from '../loads/held.ts'
import { HOT_SHARE, INDEXES_KB, TABLE_KB } from '../loads/hot-updates.ts'
import { ALL_INSIDE, BARE_INSIDE, INSIDE, TWO_TABLES_INSIDE } from '../loads/in-transaction.ts'
import type { Figure, LoadResult } from '../loads/load.ts'
import { LEFT_MB } from '../loads/memory.ts'
import { networkLoad, ROUND_TRIPS_MS } from '../loads/network.ts'
import { PREFETCH } from '../loads/prefetch.ts'
import {
  EVERYBODY,
  EVERYBODY_ALONE,
  FORCE,
  ONE_TABLE,
  REDIS_TWICE,
  REFUND,
  RESERVE_COMMIT,
  SPEND,
  SPEND_REST,
  TWO_TABLES,
} from '../loads/several.ts'
import { BUSY } from '../loads/slots.ts'
import { oursAt } from '../loads/table-size.ts'
import type { Settings } from '../settings.ts'

/** A figure to reach. */
export interface Target {
  readonly load: string
  readonly against: string
  readonly asked: { readonly atLeast: number } | { readonly atMost: number }
  readonly unit: 'x' | '%' | 'MB'
  /** Undefined if the load has no such figure, because its contender was left out or could not be seen. */
  measured(result: LoadResult): number | undefined
}

export function targets({ fewRows, manyRows, floodRows }: Settings): Target[] {
  const unprepared = 'transaction-unprepared'
  const prepared = 'transaction-prepared'
  return [
    ...throughput('64-callers-1000-keys', [
      [flexibleRedis.name, 0.95],
      [flexiblePostgres.name, 5],
      [plainSequence.name, 15],
      [BARE_UPDATE, 3.3],
    ]),
    ...throughput('256-callers-10000-keys', [
      [flexibleRedis.name, 1],
      [BARE_UPDATE, 2.5],
    ]),
    ...throughput('64-callers-1-key', [[flexibleRedis.name, 4]]),
    ...throughput('2-callers', [[BARE_UPDATE, 0.6]]),
    ...throughput('4-callers', [[BARE_UPDATE, 0.6]]),
    ...throughput('8-callers', [[BARE_UPDATE, 1.1]]),
    ...throughput('16-callers', [[BARE_UPDATE, 1.6]]),
    ...ofSeveral(),
    ...CLIFFS.map(({ call, against, atLeast }) =>
      compared(CLIFFS_LOAD, 'perSecond', call, against, { atLeast }),
    ),
    ...ofPrefetch(),
    compared('1-caller', 'p50Ms', THIS_PACKAGE, BARE_UPDATE, { atMost: 1.7 }),
    compared(unprepared, 'p50Ms', INSIDE, BARE_INSIDE, { atMost: 4 }),
    compared(prepared, 'p50Ms', INSIDE, BARE_INSIDE, { atMost: 1.8 }),
    ...[unprepared, prepared].flatMap((load) =>
      [ALL_INSIDE, TWO_TABLES_INSIDE].map((call) => compared(load, 'p50Ms', call, INSIDE, { atMost: 1.6 })),
    ),
    compared('flood', 'perSecond', floodInto(MIN_ROWS), floodInto(floodRows), { atLeast: 0.5 }),
    compared('flood', 'perSecond', firstSecondInto(MIN_ROWS), firstSecondInto(floodRows), {
      atLeast: 0.5,
    }),
    compared('held', 'p99Ms', BESIDE_HELD, FREE, { atMost: 2 }),
    compared('64-callers-1000-keys', 'serverCpuUs', THIS_PACKAGE, BARE_UPDATE, { atMost: 0.45 }),
    compared('2-callers', 'serverCpuUs', THIS_PACKAGE, BARE_UPDATE, { atMost: 1.6 }),
    compared('1-caller', 'serverCpuUs', THIS_PACKAGE, BARE_UPDATE, { atMost: 1.6 }),
    compared('64-callers-1000-keys', 'nodeCpuUs', THIS_PACKAGE, flexibleRedis.name, { atMost: 1.3 }),
    compared('64-callers-1000-keys', 'perSecond', ON_POSTGRES_JS, THIS_PACKAGE, { atLeast: 0.8 }),
    compared('4-processes-1-key', 'perSecond', THIS_PACKAGE, BEFORE, { atLeast: 1 }),
    ...ROUND_TRIPS_MS.map((ms) =>
      compared(networkLoad(ms, 8), 'p50Ms', THIS_PACKAGE, BARE_UPDATE, { atMost: 1.5 }),
    ),
    compared('denials', 'perSecond', BLOCKED, MEMORY_STORE, { atLeast: 0.5 }),
    compared('rows', 'perSecond', oursAt(manyRows), oursAt(fewRows), { atLeast: 0.8 }),
    compared('cleanup', 'p99Ms', BESIDE, ALONE, { atMost: 2 }),
    ...BUSY.inOne.map((name) => fact('slots-1-process', name, '%', { atLeast: 70 })),
    ...BUSY.inFour.map((name) => fact('slots-4-processes', name, '%', { atLeast: 50 })),
    fact('hot-updates', HOT_SHARE, '%', { atLeast: 99 }),
    {
      ...fact('hot-updates', 'table and indexes', 'MB', { atMost: 1 }),
      measured: ({ facts }) => ((facts?.[TABLE_KB] ?? 0) + (facts?.[INDEXES_KB] ?? 0)) / 1024,
    },
    fact('memory', LEFT_MB, 'MB', { atMost: 20 }),
  ]
}

function ofSeveral(): Target[] {
  return [
    ...[ONE_TABLE, TWO_TABLES].flatMap((call) => [
      compared('several-64', 'perSecond', call, LIMIT, { atLeast: 0.4 }),
      compared('several-64', 'perSecond', call, REDIS_TWICE, { atLeast: 0.5 }),
      compared('several-1', 'p50Ms', call, LIMIT, { atMost: 2 }),
    ]),
    ...[SPEND, SPEND_REST].flatMap((call) => [
      compared('several-64', 'perSecond', call, LIMIT, { atLeast: 0.3 }),
      compared('several-1', 'p50Ms', call, LIMIT, { atMost: 2.5 }),
    ]),
    compared('several-64', 'perSecond', RESERVE_COMMIT, LIMIT, { atLeast: 0.35 }),
    ...[FORCE, REFUND].map((call) => compared('several-64', 'perSecond', call, LIMIT, { atLeast: 0.8 })),
    compared('several-network', 'perSecond', EVERYBODY, EVERYBODY_ALONE, { atLeast: 0.4 }),
  ]
}

function ofPrefetch(): Target[] {
  const redis = flexibleRedis.name
  return [
    compared('prefetch-1000-keys', 'perSecond', PREFETCH, redis, { atLeast: 5 }),
    compared('prefetch-1-key', 'perSecond', PREFETCH, redis, { atLeast: 8 }),
    compared('prefetch-10000-keys', 'perSecond', PREFETCH, redis, { atLeast: 3 }),
    compared('prefetch-1-caller', 'p50Ms', PREFETCH, redis, { atMost: 0.1 }),
    compared('prefetch-network', 'perSecond', PREFETCH, THIS_PACKAGE, { atLeast: 20 }),
    compared('prefetch-1000-keys', 'nodeCpuUs', PREFETCH, redis, { atMost: 0.25 }),
    compared('prefetch-1000-keys', 'serverCpuUs', PREFETCH, THIS_PACKAGE, { atMost: 0.1 }),
    compared('prefetch-1000-keys', 'perSecond', PREFETCH, MEMORY_STORE, { atLeast: 0.4 }),
    compared('prefetch-1-key', 'perSecond', PREFETCH, MEMORY_STORE, { atLeast: 0.4 }),
  ]
}

const WORDS: Record<Figure, string> = {
  perSecond: '',
  p50Ms: 'median latency: ',
  p99Ms: 'p99: ',
  serverCpuUs: 'server CPU: ',
  nodeCpuUs: 'Node CPU: ',
}

function throughput(load: string, against: readonly (readonly [string, number])[]): Target[] {
  return against.map(([name, atLeast]) => compared(load, 'perSecond', THIS_PACKAGE, name, { atLeast }))
}

function compared(load: string, figure: Figure, one: string, other: string, asked: Target['asked']): Target {
  const against = `${WORDS[figure]}${one} / ${other}`.replaceAll('drizzle-ratelimit, ', '')
  return {
    ...{ load, against, asked, unit: 'x' },
    measured({ measured }) {
      const [above, below] = [one, other].map(
        (wanted) => measured.find(({ name }) => name === wanted)?.median[figure],
      )
      return above !== undefined && below !== undefined ? above / below : undefined
    },
  }
}

function fact(load: string, name: string, unit: Target['unit'], asked: Target['asked']): Target {
  return { load, against: name, asked, unit, measured: ({ facts }) => facts?.[name] }
}
