import { createHash } from 'node:crypto'
import { AREAS } from './areas.ts'
import { EQUIVALENT } from './equivalent.ts'
import type { Killers } from './killers.ts'
import type { Mutant } from './mutants.ts'

/** Which mutants to try. They must meet all of it. */
export interface Choice {
  readonly only?: readonly string[]
  readonly areas?: readonly string[]
  /** Those of which an earlier run knows what kills them. */
  readonly known: boolean
  /** Those of which none does. */
  readonly new: boolean
  readonly sample?: { readonly size: number; readonly seed: string }
}

/**
 * The mutants that are chosen. One that is equivalent to the source is tried only by its id.
 *
 * @throws Error for what cannot be meant, so that a run that tries nothing does not look like a success.
 */
export function choose(all: readonly Mutant[], killers: Killers, choice: Choice): readonly Mutant[] {
  const { only, areas, sample } = choice
  refuse(
    'area',
    areas,
    AREAS.map(({ name }) => name),
  )
  refuse(
    'mutant',
    only,
    all.map(({ id }) => id),
  )
  const isChosen = (mutant: Mutant) =>
    (only ? only.includes(mutant.id) : !(mutant.id in EQUIVALENT)) &&
    (areas?.includes(mutant.area) ?? true) &&
    !(choice.known && killers.of(mutant) === undefined) &&
    !(choice.new && killers.of(mutant) !== undefined)
  const chosen = all.filter(isChosen)
  if (!sample) return chosen
  if (!Number.isInteger(sample.size) || sample.size < 1) throw new Error('--sample needs a number.')
  if (sample.size > chosen.length) throw new Error(`There are only ${chosen.length}.`)
  const place = ({ id }: Mutant) => createHash('sha256').update(`${sample.seed} ${id}`).digest('hex')
  return chosen.toSorted((one, other) => place(one).localeCompare(place(other))).slice(0, sample.size)
}

function refuse(what: string, given: readonly string[] = [], known: readonly string[]): void {
  const wrong = given.filter((each) => !known.includes(each))
  if (wrong.length > 0) throw new Error(`No such ${what}: ${wrong.join(', ')}.`)
}
