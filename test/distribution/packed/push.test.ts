import { expect, inject, onTestFinished, test } from 'vitest'
import { emptyDatabase } from '../../support/databases.ts'
import { createProject } from './project.ts'

// Slow: it starts drizzle-kit.

const installed = inject('installed')

const SCHEMA = `
  import { sql } from 'drizzle-orm'
  import { pgPolicy } from 'drizzle-orm/pg-core'
  import { rateLimitTables } from 'drizzle-ratelimit/schema'

  const policies = [pgPolicy('everything', { using: sql\`true\` })]
  export const { ephemeral, durable } = rateLimitTables({ ephemeral: 'a', durable: 'b', rls: true })
  export const own = rateLimitTables({ ephemeral: 'c', durable: 'd', rls: true, policies })
  export const [c, d] = [own.ephemeral, own.durable]
`
const CONFIG = `
  const dbCredentials = { url: process.env.DATABASE_URL }
  export default { dialect: 'postgresql', schema: './schema.ts', dbCredentials }
`
const FOUND = `
  select relname, relrowsecurity, array(select polname::text from pg_policy where polrelid = c.oid) as policies
    from pg_class c where relname in ('a', 'b', 'c', 'd') order by 1
`

test.each(['0.45', '1.0'] as const)(
  'Drizzle %s, push makes and keeps the row level security and the policies that the schema declares',
  async (drizzle) => {
    const database = await emptyDatabase()
    onTestFinished(() => database.close())
    const files = { 'schema.ts': SCHEMA, 'drizzle.config.ts': CONFIG }
    const project = await createProject(installed[drizzle], files, database.url)
    const tables = (names: string, policies: string[]) =>
      [...names].map((relname) => ({ relname, relrowsecurity: true, policies }))
    for (let times = 0; times < 2; times++) {
      expect(await project.run('drizzle-kit', 'push', '--force')).toMatchObject({ code: 0 })
      expect(await database.rows(FOUND)).toEqual([...tables('ab', []), ...tables('cd', ['everything'])])
    }
  },
)
