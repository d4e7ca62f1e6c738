// `npm run mutants -- src/kernel/limits/token-bucket.ts` puts one mistake after the other into a copy of the
// source and runs the tests, which must fail. CONTRIBUTING.md has the options.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { type Covered, coverageOf } from './coverage.ts'
import { mutantsAt } from './mutants.ts'
import { type Ended, startTests, type Tests } from './tests.ts'

const CHECK = '--noEmit -p tsconfig.build.json --incremental --tsBuildInfoFile checked.json'.split(' ')

const text = { type: 'string' } as const
const options = { sample: text, seconds: text, tests: text, list: { type: 'boolean' } } as const
const { positionals, values } = parseArgs({ allowPositionals: true, options })
const mutants = (positionals.length > 0 ? positionals : ['src']).flatMap((path) => {
  const all = mutantsAt(path)
  const every = Math.ceil(all.length / Number(values.sample ?? 'Infinity')) || 1
  return all.filter((_, i) => i % every === 0)
})
console.log(`${mutants.length} mutants`)
if (values.list) for (const { shown } of mutants) console.log(shown)
else await tryAll()

async function tryAll(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'drizzle-ratelimit-mutants-'))
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
  cpSync('.', folder, { recursive: true, filter: (path) => !/(^|\/)(node_modules|\.git|dist)$/.test(path) })
  symlinkSync(resolve('node_modules'), join(folder, 'node_modules'))
  process.chdir(folder)
  // The same random calls for every mutant.
  process.env['FC_SEED'] = '1'
  const tests = await startTests(false)
  const testsOf = await coverageOf(tests.files.filter((test) => RegExp(values.tests ?? '').test(test)))
  const kills: Ended[] = []
  for (const mutant of mutants) {
    const [before, start] = [readFileSync(mutant.file, 'utf8'), performance.now()]
    tests.write(mutant.file, mutant.source)
    const all = testsOf(mutant)
    const kill = await killOf(all, tests)
    tests.write(mutant.file, before)
    all.find(({ test }) => test === kill?.test)?.kills.push(mutant.file)
    console.log(
      `${kill ? 'killed' : 'survived'}: ${mutant.shown} (${Math.round(performance.now() - start)} ms)`,
    )
    if (kill) console.log(`    by ${kill.test} ${kill.failed}`.slice(0, 400))
    if (kill) kills.push(kill)
  }
  console.log(`${kills.length} killed, ${mutants.length - kills.length} survived`)
  const again = await tests.run(kills.filter(({ ms }) => ms > 0).slice(-1))
  if (again?.failed) throw new Error(`${again.test} fails without a mutant: ${again.failed}`)
  await tests.close()
  process.exit(kills.length === mutants.length ? 0 : 1)
}

/** The five best tests come first, then the type checker, and then the others, as long as there is time. */
async function killOf(all: readonly Covered[], tests: Tests): Promise<Ended | undefined> {
  const first = await failureIn(all.slice(0, 5))
  // On a busy machine a test may be late once, and of many one may fail by chance.
  if (first && (first.ms > 0 || (await failureIn(all.filter(({ test }) => test === first.test)))))
    return first
  const { stdout } = spawnSync('node', ['node_modules/typescript/bin/tsc', ...CHECK], { encoding: 'utf8' })
  if (/error TS\d/.test(stdout)) return { test: 'the type checker', failed: '', ms: 0, reached: [] }
  let left = Number(values.seconds ?? 30) * 1000
  let rest = all.slice(5).filter(({ ms }) => {
    left -= ms
    return left > 0
  })
  for (;;) {
    const next = await failureIn(rest)
    const at = rest.findIndex(({ test }) => test === next?.test)
    if (!next || (await failureIn(rest.slice(at, at + 1)))) return next
    rest = rest.slice(at + 1)
  }

  async function failureIn(some: readonly Covered[]): Promise<Ended | undefined> {
    const last = await tests.run(some)
    for (const each of some.slice(0, 1 + some.findIndex(({ test }) => test === last?.test))) each.tries++
    return last?.failed ? last : undefined
  }
}
