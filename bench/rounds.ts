import type { Round } from './measure.ts'
import type { Progress } from './report/progress.ts'

/** Someone who takes part in a load. */
export interface Entry {
  readonly name: string
  /** Warms up and is measured once. */
  turn(): Promise<Round>
}

/** What someone did in all rounds. */
export interface Measured {
  readonly name: string
  readonly rounds: readonly Round[]
  /** Each figure's median of the rounds. */
  readonly median: Round
}

/**
 * Gives everyone a turn in each round, so that what else the machine does meanwhile meets everyone; each round begins with
 * another one, for the first may profit from the pause before it.
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
  const of = (figure: keyof Round) => median(rounds.map((round) => round[figure]))
  return {
    name,
    rounds,
    median: {
      checks: of('checks'),
      admitted: of('admitted'),
      perSecond: of('perSecond'),
      p50Ms: of('p50Ms'),
      p99Ms: of('p99Ms'),
    },
  }
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b)
  const [low, high] = [Math.floor, Math.ceil].map((round) => sorted[round((sorted.length - 1) / 2)])
  return ((low ?? Number.NaN) + (high ?? Number.NaN)) / 2
}
