// `npm run mutants -- src/algorithms/token-bucket.ts` puts one mistake after the other into a copy of the
// source and runs the tests, which must fail. CONTRIBUTING.md has the options.
import { randomInt } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'
import { FLEETING, startServer } from '../test/support/server.ts'
import { choose, sources } from './choose.ts'
import { Coverage } from './coverage.ts'
import { describe, type Mutant } from './mutants.ts'
import { type Fate, fateOf } from './trial.ts'
import { shareOut, Workshop } from './workshop.ts'

const { positionals: paths, values } = parseArgs({
  allowPositionals: true,
  options: {
    since: { type: 'string' },
    sample: { type: 'string' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    seconds: { type: 'string' },
    list: { type: 'boolean', default: false },
    workers: { type: 'string', default: String(Math.min(availableParallelism(), 8)) },
  },
})
const { since, seed } = values
const sample = values.sample === undefined ? undefined : wholeNumber('sample', values.sample)
const maxMs =
  values.seconds === undefined ? Number.POSITIVE_INFINITY : 1000 * wholeNumber('seconds', values.seconds)
const workers = wholeNumber('workers', values.workers)

const { mutants, among, equivalent, stale } = choose({ paths, since, sample, seed })
for (const each of stale) console.error(`equivalent.ts lists what is made no more: ${each}`)
const isSample = mutants.length < among
console.log(
  `${mutants.length} mutants${isSample ? ` of ${among}, with --seed ${seed}` : ''}; ${equivalent} more are equivalent`,
)
if (values.list) for (const mutant of mutants) console.log(describe(mutant))
else if (mutants.length > 0) process.exitCode = report(await fatesOf(mutants)) ? 0 : 1

function wholeNumber(name: string, value: string): number {
  if (!/^[1-9]\d*$/.test(value)) throw new Error(`--${name} needs a whole number from 1.`)
  return Number(value)
}

async function fatesOf(mutants: readonly Mutant[]): Promise<ReadonlyMap<Mutant, Fate>> {
  const fates = new Map<Mutant, Fate>()
  const server = await startServer(FLEETING)
  const opened: Workshop[] = []
  const open = async (covers: boolean) => {
    const workshops = await Promise.all(
      Array.from({ length: workers }, () => Workshop.open(server.url, covers)),
    )
    opened.push(...workshops)
    return workshops
  }
  try {
    const workshops = await open(false)
    const coverage = new Coverage(sources())
    await coverage.measure(workshops[0]?.tests ?? [], () => open(true))
    await shareOut(workshops, mutants, async (workshop, mutant) => {
      const fate = await fateOf(mutant, workshop, coverage, maxMs)
      fates.set(mutant, fate)
      console.log(`${fates.size}/${mutants.length} ${fate.kind}: ${describe(mutant)}`)
      if (fate.by) console.log(`    ${fate.by}`)
    })
    await checkWithout(workshops, fates)
    return fates
  } finally {
    await Promise.all(opened.map((workshop) => workshop.close()))
    await server.stop()
  }
}

/** Fails if what killed mutants now fails without one, as it does when the server has gone away. */
async function checkWithout(workshops: readonly Workshop[], fates: ReadonlyMap<Mutant, Fate>): Promise<void> {
  const tests = new Set([...fates.values()].flatMap(({ test }) => test ?? []))
  await shareOut(workshops, [...tests], async (workshop, test) => {
    const fails = async () => (await workshop.run([test])).failed !== undefined
    if ((await fails()) && (await fails()))
      throw new Error(`${test} now fails without a mutant: nothing is shown.`)
  })
}

/** Whether none survived. */
function report(fates: ReadonlyMap<Mutant, Fate>): boolean {
  const survivors = [...fates].filter(([, { kind }]) => kind === 'survived' || kind === 'not entered')
  for (const [mutant, { kind, by }] of survivors) console.log(`${kind}: ${describe(mutant)}, ${by}`)
  const folders = new Set([...fates.keys()].map(({ file }) => dirname(file)))
  for (const folder of folders) {
    const some = [...fates].filter(([{ file }]) => dirname(file) === folder)
    console.log(`${folder}: ${countsOf(some.map(([, fate]) => fate))}`)
  }
  console.log(`all: ${countsOf([...fates.values()])}`)
  return survivors.length === 0
}

function countsOf(fates: readonly Fate[]): string {
  const counts = new Map<string, number>()
  for (const { kind } of fates) counts.set(kind, (counts.get(kind) ?? 0) + 1)
  const parts = [...counts].map(([kind, count]) => `${count} ${kind}`)
  return [`${fates.length} tried`, ...parts.toSorted()].join(', ')
}
