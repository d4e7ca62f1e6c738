// `npm run mutants -- src/kernel/limits/token-bucket.ts` puts one mistake after the other into a copy of the
// source and runs the tests, which must fail. CONTRIBUTING.md has the options.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { coverageOf, type Kill, testsOf } from './coverage.ts'
import { type Mutant, mutantsAt } from './mutants.ts'
import { closeTests, startTests, type Tests } from './tests.ts'

/** Only the mutant and what imports it are checked again. */
const CHECK = '--noEmit -p tsconfig.build.json --incremental --tsBuildInfoFile checked.json'.split(' ')

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { sample: { type: 'string' }, seconds: { type: 'string' }, list: { type: 'boolean' } },
})
const seconds = Number(values.seconds ?? Number.POSITIVE_INFINITY)
const sample = Number(values.sample ?? Number.POSITIVE_INFINITY)
const mutants = (positionals.length > 0 ? positionals : ['src']).flatMap((path) => {
  const all = mutantsAt(path)
  return all.filter((_, i) => i % Math.max(1, Math.ceil(all.length / sample)) === 0)
})
console.log(`${mutants.length} mutants`)
if (values.list) for (const { shown } of mutants) console.log(shown)
else await tryAll()

async function tryAll(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'drizzle-ratelimit-mutants-'))
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => closeTests().finally(() => process.exit(1)))
  cpSync('.', folder, { recursive: true, filter: (path) => !/(^|\/)(node_modules|\.git|dist)$/.test(path) })
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'))
  process.chdir(folder)
  // The same random calls for every mutant.
  process.env['FC_SEED'] = '1'

  const tests = await startTests(false)
  const coverage = await coverageOf(tests.files)
  const kills: Kill[] = []
  for (const mutant of mutants) {
    const before = readFileSync(mutant.file, 'utf8')
    tests.write(mutant.file, mutant.source)
    const kill = await killOf(mutant, testsOf(mutant, coverage, kills), tests)
    tests.write(mutant.file, before)
    if (kill) kills.push(kill)
    console.log(
      kill ? `killed: ${mutant.shown}\n    by ${kill.by} ${kill.failed}` : `survived: ${mutant.shown}`,
    )
  }
  console.log(`${kills.length} killed, ${mutants.length - kills.length} survived`)
  for (const by of new Set(kills.map((kill) => kill.by))) {
    // As when the server has gone away.
    if (coverage.has(by) && (await tests.run(by)).failed) throw new Error(`${by} fails without a mutant.`)
  }
  await closeTests()
  process.exit(kills.length === mutants.length ? 0 : 1)
}

/** The five best tests come first, then the type checker, and then the others, as long as there is time. */
async function killOf({ file }: Mutant, all: readonly string[], tests: Tests): Promise<Kill | undefined> {
  const until = performance.now() + seconds * 1000
  const best = await killBy(all.slice(0, 5))
  if (best) return best
  const { stdout } = spawnSync('node', ['node_modules/typescript/bin/tsc', ...CHECK], { encoding: 'utf8' })
  if (/error TS\d/.test(stdout)) return { file, by: 'the type checker', failed: '' }
  return killBy(all.slice(5))

  async function killBy(some: readonly string[]): Promise<Kill | undefined> {
    for (const by of some) {
      if (performance.now() > until) break
      const { failed } = await tests.run(by)
      // Once may be by chance.
      if (failed && (await tests.run(by)).failed) return { file, by, failed }
    }
    return undefined
  }
}
