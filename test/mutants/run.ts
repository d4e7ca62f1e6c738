// `npm run test:mutants` puts one mistake after the other into the source and runs the tests, which must fail.
//
// It works in copies of the repository. `--sample 20 --seed 7` tries some, `--only <id>` one, `--list` lists
// them all, `--areas statements,runtime` those of some parts.
import { createHash } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import Table from 'cli-table3'
import { AREAS } from './areas.ts'
import { EQUIVALENT } from './equivalent.ts'
import { allMutants, lostChanges, type Mutant } from './mutants.ts'
import { type Fate, SharedServer, Workshop } from './workshop.ts'

type Kind = Fate['kind'] | 'equivalent'

const { values } = parseArgs({
  options: {
    sample: { type: 'string' },
    seed: { type: 'string', default: '1' },
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
const chosen = choose(all)
if (values.list) {
  for (const mutant of chosen) console.log(lineOf(mutant))
} else {
  process.exitCode = (await tryAll(chosen)) ? 0 : 1
}

/** Equivalent ones are tried only by their ids. */
function choose(mutants: readonly Mutant[]): readonly Mutant[] {
  const { only, areas, sample, seed } = values
  if (only) return mutants.filter(({ id }) => only.includes(id))
  const names = areas?.split(',')
  const found = mutants.filter(({ area }) => names?.includes(area) ?? true)
  if (sample === undefined) return found
  const place = ({ id }: Mutant) => createHash('sha256').update(`${seed} ${id}`).digest('hex')
  const tried = found.filter(({ id }) => !(id in EQUIVALENT))
  return tried.toSorted((one, other) => place(one).localeCompare(place(other))).slice(0, Number(sample))
}

/** Whether all were killed but those that are listed as equivalent. */
async function tryAll(mutants: readonly Mutant[]): Promise<boolean> {
  const server = new SharedServer()
  const fates = new Map<Mutant, Kind>()
  const rest = mutants.filter((mutant) => {
    const isListed = mutant.id in EQUIVALENT && !values.only
    if (isListed) fates.set(mutant, 'equivalent')
    return !isListed
  })
  const queue = rest.values()
  const workshops: Workshop[] = []
  const work = async () => {
    const workshop = await Workshop.open(server)
    workshops.push(workshop)
    for (const mutant of queue) {
      const startedAt = performance.now()
      const { kind, by } = await workshop.try(mutant)
      fates.set(mutant, kind)
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
      console.log(`${fates.size}/${mutants.length} ${kind} in ${seconds} s: ${lineOf(mutant)}`)
      if (by) console.log(`    by ${by}`)
    }
  }
  try {
    await Promise.all(Array.from({ length: Number(values.workers) }, work))
  } finally {
    await Promise.all(workshops.map((workshop) => workshop.close()))
    await server.stop()
  }
  report(fates)
  return ![...fates.values()].includes('survives')
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
  for (const [mutant, fate] of fates) if (fate === 'survives') console.log(`survived: ${lineOf(mutant)}`)
}

function lineOf({ id, file, line, change }: Mutant): string {
  return `${id} src/${file}:${line} ${change}`
}
