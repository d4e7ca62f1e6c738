// The tests that break with the source. Those on a server come first: tests.ts runs most files only once.
import { resolve } from 'node:path'
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import long from '../test/vitest.long.config.ts'
import config from '../vitest.config.ts'

const SERVER = ['node-postgres 1.0', 'node-postgres 1.0 long']
const NAMES = [...SERVER, 'pglite 0.45', 'pglite 0.45 isolated', 'pglite 0.45 distributed']

const root = resolve()

const all = [config, long].flatMap(({ test }) => test?.projects ?? []) as TestProjectInlineConfiguration[]
const projects = NAMES.flatMap((name) => all.filter((each) => each.test?.name === name)).map(
  ({ test = {}, ...each }) => ({
    ...each,
    root,
    test: {
      ...test,
      // What a copy of a statement shows is that it has changed, and not whether that matters.
      exclude: [...(test.exclude ?? []), 'test/**/unit/statements.test.ts'],
      setupFiles: ['mutants/setup.ts', test.setupFiles ?? []].flat(),
    },
  }),
)

export default defineConfig({ root, test: { projects } }) as ViteUserConfig
