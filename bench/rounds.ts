import { allAdmitted, measure, type Round, type Work } from './measure.ts'
import type { Progress } from './report/progress.ts'
import type { Settings } from './settings.ts'

/** A participant of a load. */
export interface Entry {
  readonly name: string
  /** Warms up and is measured once. */
  turn(): Promise<Round>
}

/** A participant of which nothing may be denied. */
export function admitted(name: string, work: Omit<Work, 'ms'>, { roundMs, warmUpMs }: Settings): Entry {
  return {
    name,
    turn: async () => {
      await measure({ ...work, ms: warmUpMs })
      return allAdmitted(await measure({ ...work, ms: roundMs }))
    },
  }
}

/** What a participant did in all rounds. */
export interface Measured {
  readonly name: string
  readonly rounds: readonly Round[]
  /** The median of each figure over the rounds. */
  readonly median: Round
}

/**
 * Gives each participant a turn in each round, so that other work of the machine disturbs all of them. Each
 * round begins with another participant, because the first may profit from the pause before it.
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
  // A participant without this figure in the first round has none in the others.
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
