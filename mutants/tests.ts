import { writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { inspect } from 'node:util'
import { createVitest, type TestModule, type TestSpecification } from 'vitest/node'

/** How a file of tests ended. */
export interface Ended {
  readonly test: string
  /** 0 if the process has ended, or had to be ended. */
  readonly ms: number
  /** The places of src/ that ran, if `covers`. */
  readonly reached: readonly string[]
  /** What failed in it, or nothing. */
  readonly failed: string
}

/** Vitest, kept ready: to start it for each mutant would take longer than most tests. */
export interface Tests {
  /** Such as `pglite 0.45: test/unit/search.test.ts`. */
  readonly files: readonly string[]
  write(file: string, source: string): void
  /** Runs files one after the other, in one new process, up to the first that fails. How the last one ended. */
  run(tests: readonly Pick<Ended, 'test' | 'ms'>[]): Promise<Ended | undefined>
  close(): Promise<void>
}

/** `covers`: to find out what tests reach. */
export async function startTests(covers: boolean): Promise<Tests> {
  process.env['MUTANTS_COVER'] = covers ? '1' : ''
  const ended: Ended[] = []
  const reporters = [{ onTestModuleEnd: (module: TestModule) => void ended.push(endedOf(module)) }]
  const vitest = await createVitest('test', { config: 'mutants/vitest.config.ts', watch: false, reporters })
  // Ends the server of the tests too.
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => void vitest.exit(true))
  const files = new Map((await vitest.globTestSpecifications()).map((each) => [nameOf(each), each]))
  return {
    files: [...files.keys()],
    write(file, source) {
      writeFileSync(file, source)
      vitest.invalidateFile(resolve(file))
    },
    async run(tests) {
      if (tests.length === 0) return undefined
      ended.length = 0
      let error: unknown
      const late = () => {
        error = 'It takes too long.'
        // Twice: a mutant may give its process no turn to end by itself.
        for (const _ of ['ask', 'kill']) void vitest.cancelCurrentRun('keyboard-input')
      }
      const timer = setTimeout(late, 15_000 + 5 * tests.reduce((sum, { ms }) => sum + ms, 0))
      const some = tests.flatMap(({ test }) => files.get(test) ?? [])
      const { unhandledErrors } = await vitest.runTestSpecifications(some)
      clearTimeout(timer)
      error ??= unhandledErrors[0]
      const failed = ended.find((each) => each.failed)
      if (failed || error === undefined) return failed ?? ended.at(-1)
      return { test: tests[ended.length]?.test ?? '', ms: 0, reached: [], failed: inspect(error) }
    },
    close: () => vitest.close(),
  }
}

function nameOf({ project, moduleId }: TestSpecification | TestModule): string {
  return `${project.name}: ${relative('', moduleId)}`
}

function endedOf(module: TestModule): Ended {
  const { collectDuration, duration } = module.diagnostic()
  const [test] = module.children.allTests('failed')
  const errors = [module, ...module.children.allSuites()].flatMap((part) => part.errors())
  const [error] = test ? (test.result().errors ?? []) : errors
  const failed = error ? `${test?.name}: ${error.message}`.replaceAll(/\s+/g, ' ') : ''
  const { reached = [] } = module.meta() as { reached?: readonly string[] }
  return { test: nameOf(module), ms: collectDuration + duration, reached, failed }
}
