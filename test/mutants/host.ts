// A process that keeps Vitest ready: to start it anew for each mutant would take longer than most tests. The
// workers in which the tests run are new each time.
import { resolve } from 'node:path'
import type { Reporter, TestCase, TestModule, TestSpecification } from 'vitest/node'
import { createVitest } from 'vitest/node'
import { nameOf, type Test } from './test.ts'

/** What is asked: to run tests, in this order, on the source with mistakes in these files, or with none. */
export interface Ask {
  /** In src/. */
  readonly changed: readonly string[]
  readonly tests: readonly Test[]
}

/** The first test that failed, if one did; and how long the files that were run took. */
export interface Told {
  readonly failed?: { readonly test: Test; readonly name: string; readonly isTimeout: boolean }
  readonly tookMs: readonly { readonly test: Test; readonly ms: number }[]
}

/** Most tests take milliseconds. A mutant that makes one wait must not hold up the others. */
const TEST_TIMEOUT_MS = 20_000

/** A worker that gives no sign of life for so long runs in a circle, where no timeout of Vitest ends it. */
const STALL_MS = 45_000

class Watcher implements Reporter {
  failed: Told['failed']
  readonly tookMs: { test: Test; ms: number }[] = []

  onTestCaseResult(test: TestCase): void {
    const { state, errors } = test.result()
    if (state === 'failed') this.#fail(test.module, test.fullName, errors[0]?.message)
  }

  onTestModuleEnd(module: TestModule): void {
    const [error] = module.errors()
    if (error) this.#fail(module, 'loading it', error.message)
    for (const suite of module.children.allSuites()) {
      const [failed] = suite.errors()
      if (failed) this.#fail(module, suite.fullName, failed.message)
    }
    this.tookMs.push({ test: testOf(module), ms: module.diagnostic().duration })
  }

  #fail(module: TestModule, name: string, message = ''): void {
    this.failed ??= { test: testOf(module), name, isTimeout: /^(Test|Hook) timed out/.test(message) }
    // Vitest ends by itself only after a failed test, and not after a failed hook.
    void vitest.cancelCurrentRun('test-failure')
  }
}

/** As given. */
class InOrder {
  async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files
  }

  async shard(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files
  }
}

let watcher = new Watcher()
/** The files that had a mistake in them the time before. */
let changedBefore: readonly string[] = []
let stalled: NodeJS.Timeout | undefined
function isAlive(): void {
  clearTimeout(stalled)
  stalled = setTimeout(() => process.exit(), STALL_MS)
}

const reporter: Reporter = {
  onTestModuleStart: isAlive,
  onTestCaseResult: (test) => {
    isAlive()
    watcher.onTestCaseResult(test)
  },
  onTestModuleEnd: (module) => {
    isAlive()
    watcher.onTestModuleEnd(module)
  },
}

const vitest = await createVitest('test', {
  ...{ watch: false, maxWorkers: 1, bail: 1, isolate: false, cache: false, testTimeout: TEST_TIMEOUT_MS },
  ...{ reporters: [reporter], sequence: { sequencer: InOrder }, silent: true },
})
const specifications = new Map(
  (await vitest.globTestSpecifications()).map((each) => [
    nameOf(testOf({ project: each.project, moduleId: each.moduleId })),
    each,
  ]),
)

process.on('message', async ({ changed, tests }: Ask) => {
  watcher = new Watcher()
  for (const file of [...changed, ...changedBefore]) vitest.invalidateFile(resolve('src', file))
  changedBefore = changed
  const chosen = tests.map((test) => specifications.get(nameOf(test)) ?? fail(`No test ${nameOf(test)}`))
  isAlive()
  const { unhandledErrors } = await vitest.runTestSpecifications(chosen)
  clearTimeout(stalled)
  const [test] = tests
  if (test && unhandledErrors.length > 0) {
    watcher.failed ??= { test, name: 'an unhandled error', isTimeout: false }
  }
  const { failed, tookMs } = watcher
  process.send?.({ ...(failed ? { failed } : {}), tookMs } satisfies Told)
})
process.on('disconnect', () => process.exit())
process.send?.('ready')

function testOf({ project, moduleId }: { project: { name: string }; moduleId: string }): Test {
  const path = moduleId.slice(resolve('test').length + 1).replace(/\.test\.ts$/, '')
  return { project: project.name, path }
}

function fail(message: string): never {
  throw new Error(message)
}
