/** README's db.ts. A test holds that they say the same. */
export const RECOMMENDED_DB = `import { drizzle } from 'drizzle-orm/node-postgres'
import { Pool } from 'pg'

const pool = new Pool({ connectionString: process.env.DATABASE_URL!, allowExitOnIdle: true }) // so scripts end
pool.on('error', console.error) // without a listener, a connection that breaks ends the process
export const db = drizzle({ client: pool })
`
