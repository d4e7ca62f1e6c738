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
