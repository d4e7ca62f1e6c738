import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { drizzle } from 'drizzle-orm/node-postgres'
import { type Contender, PLENTY } from './contender.ts'
import { openedBy } from './this-package.ts'

export const BEFORE = 'the commit before'

/** This package in another checkout that is built. It is called like the one here and uses the same tables. */
export function theCommitBefore(checkout: string): Contender {
  return {
    name: BEFORE,
    async open({ pool }, limit = PLENTY) {
      const { Ratelimit }: typeof import('../../src/index.ts') = await import(entryOf(checkout).href)
      const limiter = Ratelimit.tokenBucket(limit, '1h', limit)
      return openedBy(new Ratelimit({ db: drizzle({ client: pool }), limiter, prefix: 'before' }))
    },
  }
}

/** The file that exports the public names of the package, or those of one of its other entries. */
export function entryOf(checkout: string, entry = ''): URL {
  return pathToFileURL(resolve(checkout, 'dist/src', entry, 'index.js'))
}
