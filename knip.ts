import type { KnipConfig } from 'knip'
import { ENTRIES } from './test/support/entries.ts'

/** Installed for sub-entries and tools that are not written yet. The list is to be emptied. */
const NOT_YET = [
  ...[
    '@fastify/rate-limit',
    '@hono/node-server',
    '@opentelemetry/.+',
    '@trpc/.+',
    '@types/express',
    '@types/react',
  ],
  ...[
    'better-auth',
    'express',
    'express-rate-limit',
    'fastify',
    'hono',
    'ipaddr.js',
    'miniflare',
    'next',
    'react',
  ],
  ...['react-dom', 'structured-headers', 'drizzle-kit-v1', 'esbuild'],
]

/** Run by a path or a name that is put together, or read by another tool. */
const BY_NAME = ['@arethetypeswrong/cli', 'publint', 'jest', '@swc/core', 'drizzle-orm-v1']

const config: KnipConfig = {
  entry: [
    ...ENTRIES.values(),
    'src/cli/main.ts',
    ...['test/**/*.{ts,mjs,cjs}', 'bench/**/*.ts', 'examples/*.ts', 'rolldown.config.js'],
  ],
  project: ['{src,schema,test,bench,examples}/**/*.{ts,mjs,cjs}', '*.{ts,js}'],
  ignoreDependencies: [...NOT_YET, ...BY_NAME].map((name) => new RegExp(`^${name}$`)),
  ignoreExportsUsedInFile: { interface: true, type: true },
}

export default config
