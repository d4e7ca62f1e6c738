import { allAdmitted, measure, type Round, type Work } from './measure.ts'
import type { Progress } from './report/progress.ts'
import type { Settings } from './settings.ts'

/** Someone who takes part in a load. */
export interface Entry {
  readonly name: string
  /** Warms up and is measured once. */
  turn(): Promise<Round>
}

/** Someone of whom nothing may be denied. */
export function admitted(name: string, work: Omit<Work, 'ms'>, { roundMs, warmUpMs }: Settings): Entry {
  return {
    name,
    turn: async () => {
      await measure({ ...work, ms: warmUpMs })
      return allAdmitted(await measure({ ...work, ms: roundMs }))
    },
  }
}

/** What someone did in all rounds. */
export interface Measured {
  readonly name: string
  readonly rounds: readonly Round[]
  /** Each figure's median of the rounds. */
  readonly median: Round
}

/**
 * Gives everyone a turn in each round, so that what else the machine does meanwhile meets everyone; each round
 * begins with another one, for the first may profit from the pause before it.
 */
export async function interleave(
  entries: readonly Entry[],
  rounds: number,
  progress: Progress,
): Promise<Measured[]> {
  const measured = new Map(entries.map(({ name }) => [name, [] as Round[]]))
  for (let round = 0; round < rounds; round++) {
    const first = round % entries.length
    for (const { name, turn } of [...entries.slice(first), ...entries.slice(0, first)]) {
      progress.turn(name)
      measured.get(name)?.push(await turn())
    }
  }
  return [...measured].map(([name, rounds]) => summary(name, rounds))
}

export function summary(name: string, rounds: readonly Round[]): Measured {
  const of = (figure: keyof Round) => median(rounds.map((round) => round[figure] ?? Number.NaN))
  // Who has not measured it in the first round never does.
  const cpu = (['serverCpuUs', 'nodeCpuUs'] as const).filter((figure) => rounds[0]?.[figure] !== undefined)
  return {
    name,
    rounds,
    median: {
      checks: of('checks'),
      admitted: of('admitted'),
      perSecond: of('perSecond'),
      p50Ms: of('p50Ms'),
      p99Ms: of('p99Ms'),
      ...Object.fromEntries(cpu.map((figure) => [figure, of(figure)])),
    },
  }
}

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b)
  const [low, high] = [Math.floor, Math.ceil].map((round) => sorted[round((sorted.length - 1) / 2)])
  return ((low ?? Number.NaN) + (high ?? Number.NaN)) / 2
}
