import { once } from 'node:events'
import { createServer } from 'node:http'
import pg from 'pg'

export interface Answerer {
  /** Where statements are taken. */
  readonly address: string
  stop(): Promise<void>
}

/** Values as Postgres writes them: the driver at the other end reads them. */
const types: pg.CustomTypesConfig = { getTypeParser: () => (text: string) => text }

/**
 * Answers statements over HTTP as Neon does: a request is one statement with its parameters, and what Postgres
 * refuses has status 400.
 */
export async function startAnswerer(connectionString: string): Promise<Answerer> {
  const pool = new pg.Pool({ connectionString })
  // Connections that have just been closed may hear that the server stops.
  pool.on('error', () => {})
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    const { query, params } = JSON.parse(String(Buffer.concat(parts)))
    try {
      const text = { text: query, values: params, rowMode: 'array', types } as const
      const { fields, rows, command, rowCount } = await pool.query(text)
      response.end(JSON.stringify({ fields, rows, command, rowCount }))
    } catch (error) {
      response.statusCode = 400
      response.end(JSON.stringify({ ...Object(error), message: Object(error).message }))
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  if (!address || typeof address === 'string') throw new Error('The server has no port.')
  return {
    address: `http://127.0.0.1:${address.port}/sql`,
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
      await pool.end()
    },
  }
}
