import { defineConfig, type TestProjectConfiguration, type ViteUserConfig } from 'vitest/config'

type Driver = 'pglite' | 'node-postgres' | 'postgres-js'

/**
 * One suite, every database: each driver with each of Drizzle's versions.
 *
 * PGlite has one connection and proves SQL; what two connections do is tested on the server. What is about the package and no
 * database is tested once.
 */
function project(driver: Driver, drizzle: '0.45' | '1.0'): TestProjectConfiguration {
  const once = driver === 'pglite' && drizzle === '0.45'
  const hasServer = driver !== 'pglite'
  return {
    resolve: {
      alias: [
        { find: /^drizzle-ratelimit$/, replacement: new URL('src/index.ts', import.meta.url).pathname },
        {
          find: /^drizzle-ratelimit\/kysely$/,
          replacement: new URL('src/kysely.ts', import.meta.url).pathname,
        },
        {
          find: /^drizzle-ratelimit\/schema$/,
          replacement: new URL('schema/index.ts', import.meta.url).pathname,
        },
        ...(drizzle === '1.0' ? [{ find: /^drizzle-orm(?=\/|$)/, replacement: 'drizzle-orm-v1' }] : []),
      ],
    },
    test: {
      name: `${driver} ${drizzle}`,
      include: ['test/**/*.test.ts'],
      exclude: [...(once ? [] : ['test/package/**']), ...(hasServer ? [] : ['test/concurrency/**'])],
      provide: { driver, ...(hasServer ? {} : { serverUrl: '' }) },
      ...(hasServer ? { globalSetup: 'test/support/global-setup.ts' } : {}),
      testTimeout: 120_000,
      hookTimeout: 60_000,
    },
  }
}

const config: ViteUserConfig = defineConfig({
  test: {
    projects: [
      project('pglite', '0.45'),
      project('node-postgres', '0.45'),
      project('postgres-js', '0.45'),
      project('pglite', '1.0'),
      project('node-postgres', '1.0'),
      project('postgres-js', '1.0'),
    ],
  },
})

export default config
