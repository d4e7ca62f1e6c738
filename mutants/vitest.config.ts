// The tests that break with the source: each file in one project, on a server where it can.
import { resolve } from 'node:path'
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import config from '../vitest.config.ts'
import { notes } from './entered.ts'

const PROJECTS = ['node-postgres 1.0', 'pglite 0.45', 'pglite 0.45 isolated']

/** A statement is rendered once for a process. Only one test would enter that, if tests shared a process. */
const COVERING = { isolate: true, setupFiles: ['mutants/setup.ts'] }

const root = resolve()
const covers = process.env['MUTANTS_COVER'] === '1'

const projects = (config.test?.projects ?? []).filter(
  (each): each is TestProjectInlineConfiguration =>
    typeof each === 'object' && 'test' in each && PROJECTS.includes(String(each.test?.name)),
)

const mutants: ViteUserConfig = defineConfig({
  root,
  test: {
    projects: projects.map((each) => ({
      ...each,
      root,
      ...(covers ? { plugins: [notes], test: { ...each.test, ...COVERING } } : {}),
    })),
  },
})

export default mutants
