import { BARE_UPDATE } from '../contenders/bare-update.ts'
import { flexibleDrizzle, flexiblePostgres, flexibleRedis } from '../contenders/flexible.ts'
import { plainSequence } from '../contenders/plain-sequence.ts'
import { THIS_PACKAGE } from '../contenders/this-package.ts'
import { ALONE, BESIDE } from '../loads/cleanup.ts'
import { BLOCKED, MEMORY_STORE } from '../loads/denials.ts'
import { HOT_SHARE, INDEXES_KB, TABLE_KB } from '../loads/hot-updates.ts'
import { BARE_INSIDE, PREPARED, UNPREPARED } from '../loads/in-transaction.ts'
import type { LoadResult, Outcome } from '../loads/load.ts'
import { LEFT_MB } from '../loads/memory.ts'
import { oursAt } from '../loads/table-size.ts'
import type { Settings } from '../settings.ts'

/** What is to be reached. */
interface Target {
  readonly load: string
  readonly against: string
  readonly asked: { readonly atLeast: number } | { readonly atMost: number }
  readonly unit: 'x' | '%' | 'MB'
  /** Nothing where the load has not got it: its contender was left out. */
  measured(result: LoadResult): number | undefined
}

/** A target and what was measured. */
export interface Judged {
  readonly load: string
  readonly against: string
  readonly asked: string
  readonly measured: string
  readonly met: boolean
}

/** Judges what was run; who was left out is not judged. */
export function judge(results: readonly LoadResult[], settings: Settings): Judged[] {
  return targets(settings).flatMap(({ load, against, asked, unit, measured }) => {
    const result = results.find(({ name }) => name === load)
    const value = result && measured(result)
    if (!result || value === undefined) return []
    const [bound, words, met] =
      'atLeast' in asked
        ? [asked.atLeast, 'at least', value >= asked.atLeast]
        : [asked.atMost, 'at most', value <= asked.atMost]
    return {
      load: result.title,
      against,
      asked: `${words} ${bound}${unit}`,
      measured: `${Number(value.toPrecision(3))}${unit}`,
      met,
    }
  })
}

function targets({ fewRows, manyRows }: Settings): Target[] {
  return [
    ...throughput('64-callers-1000-keys', [
      [plainSequence.name, 18],
      [flexiblePostgres.name, 6],
      [flexibleDrizzle.name, 11],
      [flexibleRedis.name, 1],
    ]),
    ...throughput('64-callers-1-key', [
      [plainSequence.name, 80],
      [flexiblePostgres.name, 45],
      [flexibleRedis.name, 1.6],
    ]),
    compared('1-caller', 'p50Ms', THIS_PACKAGE, BARE_UPDATE, { atMost: 1.5 }),
    compared('transaction', 'p50Ms', UNPREPARED, BARE_INSIDE, { atMost: 4 }),
    compared('transaction', 'p50Ms', PREPARED, BARE_INSIDE, { atMost: 1.8 }),
    compared('denials', 'perSecond', BLOCKED, MEMORY_STORE, { atLeast: 0.5 }),
    compared('rows', 'perSecond', oursAt(manyRows), oursAt(fewRows), { atLeast: 0.8 }),
    compared('cleanup', 'p99Ms', BESIDE, ALONE, { atMost: 2 }),
    fact('hot-updates', HOT_SHARE, '%', { atLeast: 99 }),
    {
      ...fact('hot-updates', 'table and indexes', 'MB', { atMost: 1 }),
      measured: ({ facts }) => ((facts?.[TABLE_KB] ?? 0) + (facts?.[INDEXES_KB] ?? 0)) / 1024,
    },
    fact('memory', LEFT_MB, 'MB', { atMost: 20 }),
  ]
}

function throughput(load: string, against: readonly (readonly [string, number])[]): Target[] {
  return against.map(([name, atLeast]) => compared(load, 'perSecond', THIS_PACKAGE, name, { atLeast }))
}

function compared(
  load: string,
  figure: NonNullable<Outcome['comparedBy']>,
  one: string,
  other: string,
  asked: Target['asked'],
): Target {
  return {
    ...{ load, against: `${one} / ${other}`.replaceAll('drizzle-ratelimit, ', ''), asked, unit: 'x' },
    measured({ measured }) {
      const [above, below] = [one, other].map((wanted) => measured.find(({ name }) => name === wanted))
      return above && below && above.median[figure] / below.median[figure]
    },
  }
}

function fact(load: string, name: string, unit: Target['unit'], asked: Target['asked']): Target {
  return { load, against: name, asked, unit, measured: ({ facts }) => facts?.[name] }
}
