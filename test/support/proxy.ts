import { connect, createServer, type Socket } from 'node:net'

/** A server in front of the database's, which can break connections. */
export interface FaultyProxy {
  /** The same database through the proxy. */
  readonly url: string
  /** Breaks a connection instead of handing on a message that the pattern matches. */
  breaks: RegExp | undefined
  close(): Promise<void>
}

export async function proxyOf(url: string): Promise<FaultyProxy> {
  const target = new URL(url)
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        client.destroy()
        upstream.destroy()
      })
    }
    client.on('data', (data) => {
      if (proxy.breaks?.test(data.toString('latin1'))) client.destroy()
      else upstream.write(data)
    })
    upstream.on('data', (data) => client.write(data))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const through = new URL(url)
  const address = server.address()
  through.port = String(typeof address === 'object' ? address?.port : address)
  const proxy: FaultyProxy = {
    url: through.href,
    breaks: undefined,
    close: () => {
      for (const socket of sockets) socket.destroy()
      return new Promise((resolve) => server.close(() => resolve()))
    },
  }
  return proxy
}
