import { once } from 'node:events'
import { createServer } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type pg from 'pg'

/** Postgres over HTTP: each request is a statement for the database that its path names. */
export async function serveDatabases(
  databases: Readonly<Record<string, pg.Pool>>,
): Promise<{ readonly url: string; stop(): Promise<void> }> {
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    const { sql, params } = JSON.parse(String(Buffer.concat(parts)))
    if (request.url === '/slow') return
    // On a busy machine too, a Worker ends its request first. What it has cut off is not sent on.
    if (sql.includes('delete from')) await setTimeout(3_000)
    if (request.url === '/slowly') await setTimeout(200)
    if (response.destroyed) return
    try {
      const { rows } = (await databases[String(request.url)]?.query(sql, params)) ?? {}
      response.end(JSON.stringify({ rows }))
    } catch (error) {
      response.statusCode = 500
      response.end(JSON.stringify({ code: Object(error).code }))
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (!address || typeof address === 'string') throw new Error('The server has no port.')
  return {
    url: `http://127.0.0.1:${address.port}`,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
