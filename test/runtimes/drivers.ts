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

/** How each driver opens a database; `proxy` is the host and port of one that takes WebSockets. */
export const openers: Readonly<Record<string, (url: string, proxy: string) => Promise<Opened>>> = {
  'node-postgres': async (url) => {
    const [{ drizzle }, { default: pg }] = [await load('drizzle-orm/node-postgres'), await load('pg')]
    const client = new pg.Pool({ connectionString: url })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'postgres-js': async (url) => {
    const [{ drizzle }, { default: postgres }] = [
      await load('drizzle-orm/postgres-js'),
      await load('postgres'),
    ]
    const client = postgres(url, { onnotice: () => {} })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'bun-sql': async (url) => {
    const [{ drizzle }, { SQL }] = [await load('drizzle-orm/bun-sql'), await load('bun')]
    const client = new SQL(url)
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'neon-serverless': async (url, proxy) => {
    const [{ drizzle }, neon] = [
      await load('drizzle-orm/neon-serverless'),
      await load('@neondatabase/serverless'),
    ]
    Object.assign(neon.neonConfig, {
      webSocketConstructor: globalThis.WebSocket ?? (await load('ws')).default,
      wsProxy: () => `${proxy}/`,
      ...{ useSecureWebSocket: false, pipelineTLS: false, pipelineConnect: false },
    })
    const client = new neon.Pool({ connectionString: url })
    return { db: drizzle({ client }), hasTransactions: true, end: () => client.end() }
  },
  'pg-proxy': async (url) => {
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
