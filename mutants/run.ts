// `npm run mutants -- src/kernel/limits/token-bucket.ts` puts one mistake after the other into a copy of the
// source and runs the tests, which must fail. CONTRIBUTING.md has the options.
import { randomInt } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { FLEETING, startServer } from '../test/support/server.ts'
import { choose, sources } from './choose.ts'
import { Coverage } from './coverage.ts'
import { describe, type Mutant } from './mutants.ts'
import { report } from './report.ts'
import { Results } from './results.ts'
import { type Fate, fateOf, stallMsOf } from './trial.ts'
import { shareOut, Workshop } from './workshop.ts'

const { positionals: paths, values } = parseArgs({
  allowPositionals: true,
  options: {
    since: { type: 'string' },
    sample: { type: 'string' },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    seconds: { type: 'string' },
    list: { type: 'boolean', default: false },
    known: { type: 'boolean', default: false },
    workers: { type: 'string', default: String(Math.min(availableParallelism(), 8)) },
  },
})
const { since, seed } = values
const sample = values.sample === undefined ? undefined : wholeNumber('sample', values.sample)
const maxMs =
  values.seconds === undefined ? Number.POSITIVE_INFINITY : 1000 * wholeNumber('seconds', values.seconds)
const workers = wholeNumber('workers', values.workers)

const chosen = choose({ paths, since, sample, seed })
const { mutants, among, equivalent } = chosen
for (const each of chosen.stale) console.error(`equivalent.ts lists what is made no more: ${each}`)
const isSample = mutants.length < among.length
console.log(
  `${mutants.length} mutants${isSample ? ` of ${among.length}, with --seed ${seed}` : ''}; ${equivalent.length} more are equivalent`,
)
if (values.list) for (const mutant of mutants) console.log(describe(mutant))
else process.exitCode = report(chosen, await fatesOf(mutants)) ? 0 : 1

function wholeNumber(name: string, value: string): number {
  if (!/^[1-9]\d*$/.test(value)) throw new Error(`--${name} needs a whole number from 1.`)
  return Number(value)
}

async function fatesOf(mutants: readonly Mutant[]): Promise<Map<Mutant, Fate>> {
  const coverage = new Coverage(sources())
  const results = new Results(coverage)
  const known = () =>
    new Map(
      mutants.flatMap((mutant) => {
        const fate = results.get(mutant, maxMs)
        return fate ? [[mutant, fate]] : []
      }),
    )
  if (!values.known) await tryAll(mutants, coverage, results)
  return known()
}

/** Tries those of which no earlier run says how they end. */
async function tryAll(mutants: readonly Mutant[], coverage: Coverage, results: Results): Promise<void> {
  const server = await startServer(FLEETING)
  const opened: Workshop[] = []
  const open = async (covers: boolean) => {
    const opening = Array.from({ length: workers }, async () => {
      const workshop = await Workshop.open(server.url, covers)
      opened.push(workshop)
      return workshop
    })
    return Promise.all(opening)
  }
  const close = async () => {
    await Promise.all(opened.splice(0).map((workshop) => workshop.close()))
    await server.stop()
  }
  // Ctrl-C ends the server too. What fails because of that is not written down.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      results.close()
      void close().finally(() => process.exit(1))
    })
  }
  try {
    const workshops = await open(false)
    await coverage.measure(workshops[0]?.tests ?? [], () => open(true))
    const left: Mutant[] = []
    for (const mutant of mutants) {
      const fate = results.get(mutant, maxMs)
      if (fate?.test !== undefined) coverage.learn(fate.test, mutant)
      if (!fate) left.push(mutant)
    }
    if (left.length < mutants.length) console.log(`${mutants.length - left.length} are known from before`)
    const killers = new Map<string, Mutant[]>()
    let done = 0
    await shareOut(workshops, left, async (workshop, mutant) => {
      const fate = await fateOf(mutant, workshop, coverage, maxMs)
      results.set(mutant, fate, maxMs)
      const { test } = fate
      if (test !== undefined) {
        coverage.learn(test, mutant)
        killers.set(test, [...(killers.get(test) ?? []), mutant])
      }
      console.log(`${++done}/${left.length} ${fate.kind}: ${describe(mutant)}`)
      if (fate.by) console.log(`    ${fate.by}`)
    })
    await checkWithout(workshops, killers, coverage, results)
  } finally {
    await close()
  }
}

/** Takes back what tests have killed that now fail without a mutant, as when the server has gone away. */
async function checkWithout(
  workshops: readonly Workshop[],
  killers: ReadonlyMap<string, readonly Mutant[]>,
  coverage: Coverage,
  results: Results,
): Promise<void> {
  await shareOut(workshops, [...killers], async (workshop, [test, mutants]) => {
    const fails = async () => (await workshop.run([test], stallMsOf([test], coverage))).failed !== undefined
    if (!(await fails()) || !(await fails())) return
    console.error(`${test} now fails without a mutant. It counts as not having run.`)
    for (const mutant of mutants) results.delete(mutant)
  })
}
