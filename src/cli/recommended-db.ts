import { readFile } from 'node:fs/promises'

/** README's db.ts. A test holds that they say the same. */
export const RECOMMENDED_DB = `import { drizzle } from 'drizzle-orm/node-postgres'
import { Pool } from 'pg'

const waits = { connectionTimeoutMillis: 3000, lock_timeout: 3000 } // no wait is endless
const pool = new Pool({ connectionString: process.env.DATABASE_URL!, allowExitOnIdle: true, ...waits })
const log = ({ message }: Error) => console.error('database:', message)
// If nobody listens, a connection that breaks ends the process. Its client reports the error.
pool.on('error', () => {}).on('connect', (client) => client.on('error', log))
export const db = drizzle({ client: pool })
`

/** The same for postgres.js, which listens by itself. */
const POSTGRES_JS_DB = `import { drizzle } from 'drizzle-orm/postgres-js'
import postgres from 'postgres'

const waits = { connect_timeout: 3, connection: { lock_timeout: 3000 } } // in seconds, and in milliseconds
// Without this, a connection that breaks early ends the process. Arrays in raw queries are then texts.
const types = { fetch_types: false }
export const db = drizzle({ client: postgres(process.env.DATABASE_URL!, { ...waits, ...types }) })
`

/** A db.ts for the driver that the project's package.json names. */
export async function recommendedDb(): Promise<string> {
  const { dependencies = {} } = JSON.parse(await readFile('package.json', 'utf8').catch(() => '{}'))
  return dependencies.postgres && !dependencies.pg ? POSTGRES_JS_DB : RECOMMENDED_DB
}
