import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { CONTRACT, isolated, OF_SERVERS, ONCE, project, SAME } from './test/support/projects.ts'

// Each promise once: on a server, whose statements cost less than PGlite's, and on PGlite too where a database may
// differ. The other drivers and versions of Drizzle have their projects in test/vitest.long.config.ts.

const config: ViteUserConfig = defineConfig({
  test: {
    // For two cores: tests wait for Postgres about half as long as they work.
    maxWorkers: 3,
    projects: [
      project('pglite', '0.45', ...CONTRACT, 'tables', 'postgres', ...ONCE),
      isolated(project('pglite', '0.45', 'isolated', 'waiting')),
      project('node-postgres', '1.0', ...CONTRACT, 'tables', 'postgres', ...SAME, ...OF_SERVERS),
      isolated(project('node-postgres', '1.0', 'waiting')),
    ],
  },
})

export default config
