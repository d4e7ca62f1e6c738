import type { LoadResult } from '../loads/load.ts'
import type { Target } from './targets.ts'

/** A target and what was measured. */
export interface Judged {
  readonly load: string
  readonly against: string
  readonly asked: string
  readonly measured: string
  readonly met: boolean
}

/** Judges the targets of the loads and contenders that were run. */
export function judge(results: readonly LoadResult[], targets: readonly Target[]): Judged[] {
  return targets.flatMap(({ load, against, asked, unit, measured }) => {
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
