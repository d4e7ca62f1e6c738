import { createHash } from 'node:crypto'
import { AREAS } from './areas.ts'
import { EQUIVALENT } from './equivalent.ts'
import type { Killers } from './killers.ts'
import type { Mutant } from './mutants.ts'

/** Which mutants to try: those to which all of it applies. */
export interface Choice {
  readonly only?: readonly string[]
  readonly areas?: readonly string[]
  /** Those of which it is known what kills them. */
  readonly known: boolean
  /** The others. */
  readonly new: boolean
  readonly sample?: { readonly size: number; readonly seed: string }
}

/**
 * The mutants that are chosen. One that is equivalent to the source is tried only by its id.
 *
 * @throws Error for a choice of nothing, so that it does not look like a success. Only `new` may find nothing.
 */
export function choose(all: readonly Mutant[], killers: Killers, choice: Choice): readonly Mutant[] {
  const { only, areas, sample } = choice
  const areaNames = AREAS.map(({ name }) => name)
  const ids = all.map(({ id }) => id)
  for (const area of areas ?? []) if (!areaNames.includes(area)) throw new Error(`No such area: ${area}.`)
  for (const id of only ?? []) if (!ids.includes(id)) throw new Error(`No such mutant: ${id}.`)
  if (choice.known && choice.new) throw new Error('No mutant is both known and new.')
  const isChosen = (mutant: Mutant) =>
    (only ? only.includes(mutant.id) : !(mutant.id in EQUIVALENT)) &&
    (areas?.includes(mutant.area) ?? true) &&
    !(choice.known && killers.of(mutant) === undefined) &&
    !(choice.new && killers.of(mutant) !== undefined)
  const chosen = all.filter(isChosen)
  const size = sample?.size ?? chosen.length
  if (!Number.isInteger(size) || size < 0) throw new Error('--sample needs a whole number.')
  if (!choice.new && (chosen.length === 0 || size > chosen.length)) {
    throw new Error(`Only ${chosen.length} mutants are like that.`)
  }
  if (!sample) return chosen
  const place = ({ id }: Mutant) => createHash('sha256').update(`${sample.seed} ${id}`).digest('hex')
  return chosen.toSorted((one, other) => place(one).localeCompare(place(other))).slice(0, size)
}
