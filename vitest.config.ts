import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { CONTRACT, isolated, OF_SERVERS, ONCE, project, SAME, SMOKE } from './test/support/projects.ts'

// Each promise once: on a server, whose statements cost less than PGlite's. What needs no server is on PGlite, with
// the vectors and transactions. The rest of PGlite, the other drivers and versions of Drizzle, and the long runs have
// their projects in test/vitest.long.config.ts.

const config: ViteUserConfig = defineConfig({
  test: {
    // For two cores: tests wait for Postgres about half as long as they work.
    maxWorkers: 3,
    projects: [
      project('pglite', '0.45', ...SMOKE, ...ONCE),
      isolated(project('pglite', '0.45', 'isolated')),
      project('node-postgres', '1.0', ...CONTRACT, 'tables', 'postgres', ...SAME, ...OF_SERVERS),
      isolated(project('node-postgres', '1.0', 'waiting')),
    ],
  },
})

export default config
