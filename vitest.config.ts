import { defineConfig, type ViteUserConfig } from 'vitest/config'

/** One suite, every database. PGlite has one connection and proves SQL; what two connections do is tested on the server. */
const config: ViteUserConfig = defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'pglite',
          include: ['test/**/*.test.ts'],
          exclude: ['test/concurrency/**'],
          provide: { driver: 'pglite', serverUrl: '' },
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'postgres',
          include: ['test/**/*.test.ts'],
          exclude: ['test/package/**'],
          provide: { driver: 'node-postgres' },
          globalSetup: 'test/support/global-setup.ts',
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
})

export default config
