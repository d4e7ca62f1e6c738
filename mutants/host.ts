// A process in a copy of the repository that keeps Vitest ready: to start it for each mutant would take longer
// than most tests. The workers in which the tests run are new each time.
import { relative, resolve } from 'node:path'
import { createVitest, type Reporter, type TestModule, type TestSpecification } from 'vitest/node'
import type { Ask, Failed, Message, Told } from './messages.ts'

/** A mutant that makes a test wait must not hold up the others. */
const TEST_TIMEOUT_MS = 30_000

/** Each file of tests runs once: on a server, where it can. */
const SERVER = ['node-postgres 1.0', 'node-postgres 1.0 long']
const [IN_PROCESS, DISTRIBUTED] = ['pglite 0.45', 'pglite 0.45 distributed']

/** PGlite takes another way through the code. */
const ON_BOTH = /\/drivers\//

/** These enter nearly all of what only distributed tables need. */
const FOR_DISTRIBUTED = /\/(drivers|transactions)\//

/** What a copy of a statement shows is that it has changed, and not whether that matters. */
const COPIES = /\/unit\/statements\./

class Run {
  failed: Failed | undefined
  readonly allFailed = new Set<string>()
  readonly ended: string[] = []

  fail(test: string, name: string, message = ''): void {
    this.failed ??= { test, name, isTimeout: /^(Test|Hook) timed out/.test(message) }
    this.allFailed.add(test)
    if (covers) return
    // Vitest ends by itself after a failed test, and not after a failed hook.
    void vitest.cancelCurrentRun('test-failure')
  }

  told(): Told {
    const { failed, ended } = this
    return { ended, ...(failed ? { failed } : {}) }
  }
}

const covers = process.env['MUTANTS_COVER'] === '1'
let run = new Run()
let stalled: NodeJS.Timeout | undefined
let stallMs = 0
const reporter: Reporter = {
  onTestModuleStart(module) {
    isAlive()
    send({ started: nameOf(module) })
  },
  onTestCaseResult(test) {
    isAlive()
    const { state, errors } = test.result()
    if (state === 'failed') run.fail(nameOf(test.module), test.fullName, errors[0]?.message)
  },
  onTestModuleEnd(module) {
    isAlive()
    for (const part of [module, ...module.children.allSuites()]) {
      for (const { message } of part.errors()) {
        run.fail(nameOf(module), part.type === 'module' ? 'loading it' : part.fullName, message)
      }
    }
    const test = nameOf(module)
    run.ended.push(test)
    const { entered } = module.meta()
    if (covers && entered && !run.allFailed.has(test)) send({ covered: { test, entered, ms: msOf(module) } })
  },
}

const vitest = await createVitest('test', {
  ...{ config: 'mutants/vitest.config.ts', watch: false, maxWorkers: 1, bail: covers ? 0 : 1, cache: false },
  ...(covers ? {} : { testTimeout: TEST_TIMEOUT_MS }),
  ...{ reporters: [reporter], silent: true },
  sequence: {
    sequencer: class {
      sort = asGiven
      shard = asGiven
    },
  },
})
const specifications = new Map(
  chosen(await vitest.globTestSpecifications()).map((each) => [nameOf(each), each]),
)
/** Files that were changed the time before, and are as they were. */
let changedBefore: readonly string[] = []

process.on('message', async ({ changed, tests, ...ask }: Ask) => {
  run = new Run()
  stallMs = ask.stallMs
  for (const file of [...changed, ...changedBefore]) vitest.invalidateFile(resolve(file))
  changedBefore = changed
  isAlive()
  const { unhandledErrors } = await vitest.runTestSpecifications(tests.map(specificationOf))
  clearTimeout(stalled)
  if (unhandledErrors.length > 0) run.fail(run.ended.at(-1) ?? '', 'an unhandled error')
  send({ told: run.told() })
})
process.on('disconnect', () => process.exit())
send({ tests: [...specifications.keys()] })

/** Each file in the best of its projects. */
function chosen(all: readonly TestSpecification[]): readonly TestSpecification[] {
  const has = (names: readonly string[], { moduleId }: TestSpecification) =>
    all.some((other) => other.moduleId === moduleId && names.includes(other.project.name))
  return all.filter((each) => {
    const { name } = each.project
    if (COPIES.test(each.moduleId)) return false
    if (SERVER.includes(name)) return true
    if (name === DISTRIBUTED) return FOR_DISTRIBUTED.test(each.moduleId)
    return name === IN_PROCESS
      ? ON_BOTH.test(each.moduleId) || !has(SERVER, each)
      : !has([IN_PROCESS], each) && !has(SERVER, each)
  })
}

/** A worker that runs in a circle is ended with this process: no timeout of Vitest does it. */
function isAlive(): void {
  clearTimeout(stalled)
  stalled = setTimeout(() => process.exit(), stallMs)
}

function msOf(module: TestModule): number {
  const { collectDuration, setupDuration, duration } = module.diagnostic()
  return collectDuration + setupDuration + duration
}

function nameOf({ project, moduleId }: Pick<TestModule | TestSpecification, 'project' | 'moduleId'>): string {
  return `${project.name}: ${relative('', moduleId)}`
}

function specificationOf(test: string): TestSpecification {
  const found = specifications.get(test)
  if (!found) throw new Error(`There is no ${test}.`)
  return found
}

async function asGiven(files: TestSpecification[]): Promise<TestSpecification[]> {
  return files
}

function send(message: Message): void {
  process.send?.(message)
}
