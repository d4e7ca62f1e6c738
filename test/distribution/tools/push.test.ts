import { PGlite } from '@electric-sql/pglite'
import { expect, test } from 'vitest'
import { copyForKit } from './kit.ts'

// Slow: it starts drizzle-kit.

const SCHEMA = `
  import { sql } from 'drizzle-orm'
  import { pgPolicy } from 'drizzle-orm/pg-core'
  import { rateLimitTables } from './schema/index.ts'

  const policies = [pgPolicy('everything', { using: sql\`true\` })]
  export const { ephemeral, durable } = rateLimitTables({ ephemeral: 'a', durable: 'b', rls: true })
  export const own = rateLimitTables({ ephemeral: 'c', durable: 'd', rls: true, policies })
  export const [c, d] = [own.ephemeral, own.durable]
`
const CONFIG = `
  const dbCredentials = { url: './pg' }
  export default { dialect: 'postgresql', driver: 'pglite', schema: './own.ts', dbCredentials }
`
const FOUND = `
  select relname, relrowsecurity, array(select polname::text from pg_policy where polrelid = c.oid) as policies
    from pg_class c where relname in ('a', 'b', 'c', 'd') order by 1
`

test('push makes and keeps the row level security and the policies that the schema declares', async () => {
  const project = await copyForKit()
  await project.write('own.ts', SCHEMA)
  await project.write('push.config.ts', CONFIG)
  const tables = (names: string, policies: string[]) =>
    [...names].map((relname) => ({ relname, relrowsecurity: true, policies }))
  for (let times = 0; times < 2; times++) {
    await project.kit('push', '--force', '--config', 'push.config.ts')
    const database = await PGlite.create(`${project.folder}/pg`)
    try {
      const { rows } = await database.query(FOUND)
      expect(rows).toEqual([...tables('ab', []), ...tables('cd', ['everything'])])
    } finally {
      await database.close()
    }
  }
})
