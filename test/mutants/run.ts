// `npm run test:mutants` puts one mistake after the other into the source and runs the tests, which must fail.
//
// It works in copies of the repository, and keeps what killed each in killers.json. `--sample 20 --seed 7`
// tries some, `--known` those of which it is known what kills them, `--new` the others, `--only <id>` one, and
// `--areas statements,runtime` those of some parts. `--list` only lists them.
import { randomInt } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import Table from 'cli-table3'
import { AREAS } from './areas.ts'
import { choose } from './choose.ts'
import { EQUIVALENT } from './equivalent.ts'
import { Killers } from './killers.ts'
import { allMutants, describe, lostChanges, type Mutant } from './mutants.ts'
import { tryAll } from './rounds.ts'
import type { Fate } from './trial.ts'

const { values } = parseArgs({
  options: {
    sample: { type: 'string' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    known: { type: 'boolean', default: false },
    new: { type: 'boolean', default: false },
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
const { known, new: isNew, only, areas, sample, seed } = values
const workers = Number(values.workers)
const killers = new Killers()
const chosen = chosenMutants()
console.log(`${chosen.length} of ${all.length} mutants${sample ? `, with --seed ${seed}` : ''}`)
if (values.list) {
  for (const mutant of chosen) console.log(describe(mutant))
} else if (chosen.length > 0) {
  process.exitCode = (await isEachKilled(chosen)) ? 0 : 1
}

function chosenMutants(): readonly Mutant[] {
  try {
    if (!Number.isInteger(workers) || workers < 1) throw new Error('--workers needs a whole number from 1.')
    return choose(all, killers, {
      ...{ known, new: isNew },
      ...(only === undefined ? {} : { only }),
      ...(areas === undefined ? {} : { areas: areas.split(',') }),
      ...(sample === undefined ? {} : { sample: { size: Number(sample), seed } }),
    })
  } catch (error) {
    console.error((error as Error).message)
    process.exit(2)
  }
}

async function isEachKilled(mutants: readonly Mutant[]): Promise<boolean> {
  const startedAt = performance.now()
  const fates = await tryAll({ mutants, all, killers, workers })
  const isWhole = !known && !isNew && [only, areas, sample].every((each) => each === undefined)
  if (isWhole) killers.keepOnly(all)
  report(fates)
  console.log(`${((performance.now() - startedAt) / 60_000).toFixed(0)} minutes, ${workers} at a time`)
  return mutants.every((mutant) => (fates.get(mutant)?.kind ?? 'survives') !== 'survives')
}

function report(fates: ReadonlyMap<Mutant, Fate>): void {
  const kinds = ['tests', 'time', 'compile', 'survives'] as const
  const table = new Table({
    head: [
      'area',
      'tried',
      'killed by tests',
      'by time',
      'by types only',
      'survived',
      'listed as equivalent',
    ],
    style: { head: [], border: [] },
  })
  const rowOf = (name: string, isIn: (mutant: Mutant) => boolean) => {
    const found = [...fates].flatMap(([mutant, { kind }]) => (isIn(mutant) ? [kind] : []))
    const counts = kinds.map((kind) => found.filter((each) => each === kind).length)
    const listed = all.filter((mutant) => isIn(mutant) && mutant.id in EQUIVALENT)
    return [name, found.length, ...counts, listed.length]
  }
  for (const { name } of AREAS) table.push(rowOf(name, ({ area }) => area === name))
  table.push(rowOf('all', () => true))
  console.log(table.toString())
  for (const [mutant, { kind }] of fates) {
    if (kind === 'survives') console.log(`survived: ${describe(mutant)}`)
  }
}
