// `npm run test:mutants` puts one mistake after the other into the source and runs the tests, which must fail.
//
// It works in copies of the repository, and keeps what killed each in killers.json. `--sample 20 --seed 7`
// tries some, `--known` those that were killed before, `--only <id>` one, `--areas statements,runtime` those of
// some parts. `--list` only lists them.
import { createHash, randomInt } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import Table from 'cli-table3'
import { AREAS } from './areas.ts'
import { EQUIVALENT } from './equivalent.ts'
import { Killers } from './killers.ts'
import { allMutants, describe, lostChanges, type Mutant } from './mutants.ts'
import { tryAll } from './rounds.ts'
import type { Fate } from './trial.ts'

type Kind = Fate['kind'] | 'equivalent'

const { values } = parseArgs({
  options: {
    sample: { type: 'string' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    known: { type: 'boolean', default: false },
    only: { type: 'string', multiple: true },
    areas: { type: 'string' },
    list: { type: 'boolean', default: false },
    workers: { type: 'string', default: String(Math.min(availableParallelism(), 8)) },
  },
})

const all = allMutants()
const outdated = [
  ...lostChanges().map((lost) => `by-hand.ts: ${lost}`),
  ...Object.keys(EQUIVALENT)
    .filter((id) => !all.some((mutant) => mutant.id === id))
    .map((id) => `equivalent.ts: ${id} is made no more`),
]
if (outdated.length > 0) {
  console.error(outdated.join('\n'))
  process.exit(2)
}
const killers = new Killers()
const chosen = choose(all)
if (values.list) {
  for (const mutant of chosen) console.log(describe(mutant))
} else {
  process.exitCode = (await isEachKilled(chosen)) ? 0 : 1
}

/** Equivalent ones are tried only by their ids. */
function choose(mutants: readonly Mutant[]): readonly Mutant[] {
  const { only, areas, known, sample, seed } = values
  if (only) return mutants.filter(({ id }) => only.includes(id))
  const names = areas?.split(',')
  const found = mutants.filter(
    (mutant) => (names?.includes(mutant.area) ?? true) && (!known || killers.of(mutant)),
  )
  if (sample === undefined) return found
  console.log(`${sample} of ${found.length}, with --seed ${seed}`)
  const place = ({ id }: Mutant) => createHash('sha256').update(`${seed} ${id}`).digest('hex')
  const tried = found.filter(({ id }) => !(id in EQUIVALENT))
  return tried.toSorted((one, other) => place(one).localeCompare(place(other))).slice(0, Number(sample))
}

/** Whether all were killed but those that are listed as equivalent. */
async function isEachKilled(mutants: readonly Mutant[]): Promise<boolean> {
  const startedAt = performance.now()
  const isListed = ({ id }: Mutant) => id in EQUIVALENT && !values.only
  const rest = mutants.filter((mutant) => !isListed(mutant))
  killers.keepOnly(all)
  const fates = await tryAll(rest, killers, Number(values.workers))
  const kinds = mutants.map((mutant) => [mutant, fates.get(mutant)?.kind ?? 'equivalent'] as const)
  report(new Map(kinds))
  console.log(`${((performance.now() - startedAt) / 60_000).toFixed(0)} minutes, ${values.workers} at a time`)
  return !kinds.some(([, kind]) => kind === 'survives')
}

function report(fates: ReadonlyMap<Mutant, Kind>): void {
  const kinds = ['tests', 'time', 'compile', 'survives', 'equivalent'] as const
  const table = new Table({
    head: ['area', 'made', 'killed by tests', 'by time', 'by types only', 'survived', 'equivalent'],
    style: { head: [], border: [] },
  })
  const rowOf = (name: string, isIn: (mutant: Mutant) => boolean) => {
    const found = [...fates].flatMap(([mutant, fate]) => (isIn(mutant) ? [fate] : []))
    const counts = kinds.map((kind) => found.filter((fate) => fate === kind).length)
    return [name, found.length, ...counts]
  }
  for (const { name } of AREAS) table.push(rowOf(name, ({ area }) => area === name))
  table.push(rowOf('all', () => true))
  console.log(table.toString())
  for (const [mutant, fate] of fates) if (fate === 'survives') console.log(`survived: ${describe(mutant)}`)
}
