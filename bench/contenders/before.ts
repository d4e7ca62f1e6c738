import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { drizzle } from 'drizzle-orm/node-postgres'
import { type Contender, PLENTY } from './contender.ts'
import { openedBy } from './this-package.ts'

export const BEFORE = 'the commit before'

/** This package as it is in another checkout. It is asked like the one here, and shares its tables. */
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

/** The file whose names are the package's. */
export function entryOf(checkout: string): URL {
  return pathToFileURL(resolve(checkout, 'src/index.ts'))
}
