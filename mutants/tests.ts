import { writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { createVitest, type TestSpecification, type Vitest } from 'vitest/node'

/** These take other ways through the code with each driver. Others run once, on a server where they can. */
const IN_EACH_PROJECT = /\/(drivers|transactions)\//

/** How a file of tests ended. */
export interface Ended {
  readonly ms: number
  /** The functions of src/ that it has entered, if `covers`. */
  readonly entered: readonly string[]
  /** What failed in it, or nothing. */
  readonly failed: string
}

/** Vitest, kept ready: to start it for each mutant would take longer than most tests. */
export interface Tests {
  /** Such as `pglite 0.45: test/unit/search.test.ts`. */
  readonly files: readonly string[]
  write(file: string, source: string): void
  /** Runs a file of tests, in a process of its own. */
  run(test: string): Promise<Ended>
}

const started: Vitest[] = []

/** Ends the server of the tests too. */
export async function closeTests(): Promise<void> {
  await Promise.all(started.map((vitest) => vitest.close()))
}

/** `covers`: to find out what tests enter. Others end when something fails. */
export async function startTests(covers: boolean): Promise<Tests> {
  process.env['MUTANTS_COVER'] = covers ? '1' : ''
  const vitest = await createVitest('test', {
    ...{ config: 'mutants/vitest.config.ts', watch: false, cache: false, silent: true, reporters: [{}] },
    // A mutant that makes a test wait must not hold up the others.
    ...(covers ? {} : { bail: 1, testTimeout: 30_000, hookTimeout: 30_000 }),
  })
  started.push(vitest)
  const all = (await vitest.globTestSpecifications()).filter(
    ({ moduleId }, i, every) =>
      IN_EACH_PROJECT.test(moduleId) || every.findIndex((each) => each.moduleId === moduleId) === i,
  )
  const nameOf = ({ project, moduleId }: TestSpecification) => `${project.name}: ${relative('', moduleId)}`
  const specifications = new Map(all.map((each) => [nameOf(each), each]))
  return {
    files: [...specifications.keys()],
    write(file, source) {
      writeFileSync(file, source)
      vitest.invalidateFile(resolve(file))
    },
    async run(test) {
      const specification = specifications.get(test)
      const { unhandledErrors } = await vitest.runTestSpecifications(specification ? [specification] : [])
      const module = specification?.testModule
      const parts = module ? [module, ...module.children.allSuites()] : []
      const tests = [...(module?.children.allTests('failed') ?? [])]
      const [failed = ''] = [
        ...tests.map((each) => `${each.fullName}: ${each.result().errors?.[0]?.message}`),
        // Unhandled is that the process has ended.
        ...[...parts.flatMap((part) => part.errors()), ...unhandledErrors].map(String),
      ]
      const { collectDuration = 0, duration = 0 } = module?.diagnostic() ?? {}
      return {
        ms: collectDuration + duration,
        entered: module?.meta().entered ?? [],
        failed: failed.replaceAll(/\s+/g, ' '),
      }
    },
  }
}
