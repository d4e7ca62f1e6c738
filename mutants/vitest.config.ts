// The tests that break with the source: host.ts chooses the best project for each file.
import { resolve } from 'node:path'
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import long from '../test/vitest.long.config.ts'
import config from '../vitest.config.ts'
import { notes } from './entered.ts'

const PROJECTS = [
  ...['node-postgres 1.0', 'node-postgres 1.0 long', 'pglite 0.45', 'pglite 0.45 isolated'],
  'pglite 0.45 distributed',
]

const root = resolve()
const covers = process.env['MUTANTS_COVER'] === '1'

const projects = [config, long]
  .flatMap(({ test }) => test?.projects ?? [])
  .filter(
    (each): each is TestProjectInlineConfiguration =>
      typeof each === 'object' && 'test' in each && PROJECTS.includes(String(each.test?.name)),
  )

const mutants: ViteUserConfig = defineConfig({
  root,
  test: {
    projects: projects.map((each) => ({ ...(covers ? covering(each) : each), root })),
  },
})

/** A statement is rendered once for a process. Only one test would enter that, if tests shared a process. */
function covering(project: TestProjectInlineConfiguration): TestProjectInlineConfiguration {
  const { plugins = [], test = {} } = project
  const setupFiles = ['mutants/setup.ts', test.setupFiles ?? []].flat()
  return { ...project, plugins: [notes, ...plugins], test: { ...test, isolate: true, setupFiles } }
}

export default mutants
