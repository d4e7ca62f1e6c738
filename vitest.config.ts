import { defineConfig, type ViteUserConfig } from 'vitest/config'
import { CONTRACT, isolated, OF_SERVERS, ONCE, project } from './test/support/projects.ts'

// Each promise once: on PGlite, and on a server where a server or several connections matter. The other drivers
// and versions of Drizzle have their projects in test/vitest.long.config.ts.

const config: ViteUserConfig = defineConfig({
  test: {
    // For two cores: tests wait for Postgres about half as long as they work.
    maxWorkers: 3,
    projects: [
      project('pglite', '0.45', ...CONTRACT, 'tables', 'postgres', 'answers', 'quotas', 'routes', ...ONCE),
      isolated(project('pglite', '0.45', 'isolated', 'waiting')),
      project('node-postgres', '1.0', ...CONTRACT, 'tables', 'postgres', ...OF_SERVERS),
      isolated(project('node-postgres', '1.0', 'waiting')),
    ],
  },
})

export default config
