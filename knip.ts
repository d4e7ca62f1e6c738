import type { KnipConfig } from 'knip'
import { ENTRIES } from './test/support/entries.ts'

/** Run by a path or a name that is put together, read by another tool, or in a page of the docs. */
const BY_NAME = [
  ...['@arethetypeswrong/cli', 'publint', 'jest', 'drizzle-kit-v1', 'drizzle-orm-v1'],
  '@as-integrations/express5',
  'eventsource-parser',
  'graphql-query-complexity',
  'typescript-5.4',
  'typescript-5.9',
]

/** drizzle.config.ts names it too. */
const SCHEMA = 'schema/index.ts'

/** Modules of a runtime. */
const BUILT_IN = ['cloudflare']

const config: KnipConfig = {
  entry: [
    ...[...ENTRIES.values()].filter((file) => file !== SCHEMA),
    'src/cli/main.ts',
    ...[
      'test/**/*.{ts,mjs,cjs,js,jsx}',
      'bench/**/*.ts',
      'mutants/{run,setup,vitest.config}.ts',
      'tools/*.ts',
      'examples/*.ts',
    ],
  ],
  project: ['{src,schema,test,bench,mutants,tools,examples}/**/*.{ts,mjs,cjs,js,jsx,svelte}', '*.{ts,js}'],
  ignoreDependencies: [...BY_NAME, ...BUILT_IN].map((name) => new RegExp(`^${name}$`)),
  ignoreExportsUsedInFile: { interface: true, type: true },
}

export default config
