import { relative } from 'node:path'
import { defineConfig, type TestProjectInlineConfiguration, type ViteUserConfig } from 'vitest/config'
import { CONTRACT, distributed, isolated, OF_SERVERS, ONCE, project, SAME } from '../test/support/projects.ts'
import { probed } from './probes.ts'

/** Says which places run, before Vite takes the types away. */
const probes = {
  ...{ name: 'probes', enforce: 'pre' },
  transform(code: string, id: string) {
    const isProbed = process.env['MUTANTS_COVER'] && /^src\/.*\.ts$/.test(relative('', id))
    return isProbed ? probed(relative('', id), code) : undefined
  },
} as const

/** The tests that break with the source, on a server, whose statements take a sixth of PGlite's time. */
const projects = [
  project('node-postgres', '1.0', ...CONTRACT, 'tables', 'postgres', ...SAME, ...OF_SERVERS, ...ONCE, 'long'),
  isolated(project('node-postgres', '1.0', 'waiting', 'isolated')),
  distributed(project('node-postgres', '1.0', ...CONTRACT, 'postgres', 'answers', 'quotas')),
  // These take other ways through the code with each driver.
  project('pglite', '0.45', 'drivers', 'transactions'),
].map(({ test = {}, plugins = [], ...each }): TestProjectInlineConfiguration => {
  const setupFiles = ['mutants/setup.ts', test.setupFiles ?? []].flat()
  // What a copy of a statement shows is that it has changed, and not whether that matters.
  const exclude = ['test/**/unit/statements.test.ts']
  return { ...each, plugins: [probes, ...plugins], test: { ...test, setupFiles, exclude } }
})

const sequencer = class {
  shard = <T>(files: T): T => files
  sort = <T>(files: T): T => files
}
// Files of a project share a process, one after the other in the order that was asked for, until one fails.
const options = { bail: 1, maxWorkers: 1, sequence: { sequencer }, silent: true, teardownTimeout: 5000 }

export default defineConfig({ root: '.', test: { projects, ...options } }) as ViteUserConfig
