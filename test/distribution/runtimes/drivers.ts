import type { Database } from 'drizzle-ratelimit'

/** A database on the runtime. */
interface Opened {
  readonly db: Database
  readonly hasTransactions: boolean
  end(): Promise<unknown>
}

/** Not all modules are installed here, nor on each runtime. */
// biome-ignore lint/suspicious/noExplicitAny: their types are not here either.
export function load(name: string): Promise<any> {
  return import(name)
}

/** Node has no WebSocket of its own before 22. */
async function webSockets(): Promise<object> {
  return { webSocketConstructor: globalThis.WebSocket ?? (await load('ws')).default }
}

/** Settings of Neon's driver: bytes go to the proxy as they are. */
function over(proxy: string): object {
  const plain = { useSecureWebSocket: false, pipelineTLS: false, pipelineConnect: false }
  return { wsProxy: () => `${proxy}/`, ...plain }
}

/** Where one database can be reached. */
export interface Addresses {
  /** Over TCP. */
  readonly url: string
  /** The host and port of the proxy that takes WebSockets. */
  readonly proxy: string
  /** Where statements are taken over HTTP. */
  readonly http: string
}

/** How each driver opens a database. */
export const openers: Readonly<Record<string, (at: Addresses) => Promise<Opened>>> = {
  'node-postgres': async ({ url }) => {
    const [{ drizzle }, { default: pg }] = [await load('drizzle-orm/node-postgres'), await load('pg')]
    const client = new pg.Pool({ connectionString: url })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'postgres-js': async ({ url }) => {
    const [{ drizzle }, { default: postgres }] = [
      await load('drizzle-orm/postgres-js'),
      await load('postgres'),
    ]
    const client = postgres(url, { onnotice: () => {} })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'bun-sql': async ({ url }) => {
    const [{ drizzle }, { SQL }] = [await load('drizzle-orm/bun-sql'), await load('bun')]
    const client = new SQL(url)
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'neon-serverless': async ({ url, proxy }) => {
    const [{ drizzle }, neon] = [
      await load('drizzle-orm/neon-serverless'),
      await load('@neondatabase/serverless'),
    ]
    Object.assign(neon.neonConfig, { ...(await webSockets()), ...over(proxy) })
    const client = new neon.Pool({ connectionString: url })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'vercel-postgres': async ({ url, proxy }) => {
    const [{ drizzle }, vercel] = [await load('drizzle-orm/vercel-postgres'), await load('@vercel/postgres')]
    // It takes the address of a pooler only, or this host. The proxy does not read it.
    const connectionString = Object.assign(new URL(url), { hostname: 'localhost' }).href
    const client = vercel.createPool({ connectionString: connectionString.replace(/^\w+:/, 'postgresql:') })
    // It has a copy of Neon's driver of its own, whose settings each client has too.
    client.Client = class extends vercel.VercelClient {
      constructor(config: unknown) {
        super(config)
        Object.assign(this['neonConfig'], over(proxy))
      }
    }
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'neon-http': async ({ url, http }) => {
    const [{ drizzle }, neon] = [await load('drizzle-orm/neon-http'), await load('@neondatabase/serverless')]
    neon.neonConfig.fetchEndpoint = http
    return { db: drizzle({ client: neon.neon(url) }), hasTransactions: false, end: async () => {} }
  },
  'pg-proxy': async ({ url }) => {
    const [{ drizzle }, { default: pg }] = [await load('drizzle-orm/pg-proxy'), await load('pg')]
    const client = new pg.Pool({ connectionString: url })
    const db = drizzle(async (text: string, params: unknown[], method: string) => {
      const { rows } = await client.query({
        text,
        values: params,
        ...(method === 'all' && { rowMode: 'array' }),
      })
      return { rows }
    })
    return { db, hasTransactions: false, end: () => client.end() }
  },
}
