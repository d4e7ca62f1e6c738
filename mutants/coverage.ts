import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { type Mutant, placesIn, sourcesAt } from './mutants.ts'
import { type Ended, startTests } from './tests.ts'

/** What a file of tests reaches, and what has come of it in this run. */
export interface Covered extends Ended {
  tries: number
  /** The files of the mutants that it has killed. */
  readonly kills: string[]
}

const KEPT = 'node_modules/.cache/mutants'
const PLACES = `${KEPT}/places.json`

/** Finds the tests of a mutant. Those that have changed since they last passed run once. */
export async function coverageOf(tests: readonly string[]): Promise<(mutant: Mutant) => readonly Covered[]> {
  const changed = tests.filter((test) => !existsSync(keptOf(test)))
  if (changed.length > 0) await cover(changed)
  const places: ReadonlySet<string> = new Set(JSON.parse(readFileSync(PLACES, 'utf8')))
  const kept = tests.filter((test) => existsSync(keptOf(test)))
  const covered = kept.map((test): Covered => {
    return { ...JSON.parse(readFileSync(keptOf(test), 'utf8')), test, tries: 0, kills: [] }
  })
  return ({ file, id }) => {
    // First those that kill much in little time, most of all in this file.
    const worth = ({ kills, tries, ms }: Covered) =>
      (1 + kills.length + 3 * kills.filter((each) => each === file).length) / (1 + tries) / (300 + ms)
    // A new place has the tests of its file.
    const some = covered.filter(({ reached }) => reached.includes(places.has(id) ? id : file))
    return some.toSorted((one, other) => worth(other) - worth(one))
  }
}

async function cover(tests: readonly string[]): Promise<void> {
  const files = sourcesAt('src').map((file) => [file, readFileSync(file, 'utf8')] as const)
  const places = new Map(files.flatMap(([file, text]) => placesIn(file, text).map(({ id }) => [id, file])))
  mkdirSync(KEPT, { recursive: true })
  if (!existsSync(PLACES)) writeFileSync(PLACES, JSON.stringify([...places.keys()]))
  const covering = await startTests(true)
  for (const test of tests) {
    const ended = await covering.run([{ test, ms: 20_000 }])
    console.log(`${test}: ${ended?.failed || `${ended?.ms} ms`}`)
    if (!ended || ended.failed) continue
    const reached = [...new Set(ended.reached.flatMap((id) => [id, places.get(id) ?? id]))]
    writeFileSync(keptOf(test), JSON.stringify({ ...ended, reached }))
  }
  await covering.close()
}

/** For a test such as `pglite 0.45: test/unit/search.test.ts`. */
function keptOf(test: string): string {
  const text = test + readFileSync(test.slice(test.indexOf(': ') + 2), 'utf8')
  return `${KEPT}/${createHash('sha256').update(text).digest('base64url')}.json`
}
