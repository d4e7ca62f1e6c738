import { connect } from 'node:net'

/** What is used of the package ws, which is installed with the runtimes. */
export interface WebSocketServers {
  readonly WebSocketServer: new (options: {
    readonly host: string
    readonly port: number
  }) => {
    address(): { readonly port: number }
    on(event: 'connection', listener: (socket: Socket) => void): void
    once(event: 'listening', listener: () => void): void
    close(): void
    readonly clients: ReadonlySet<{ terminate(): void }>
  }
}

interface Socket {
  on(event: 'message', listener: (data: Uint8Array) => void): void
  on(event: 'close' | 'error', listener: () => void): void
  send(data: Uint8Array): void
  close(): void
}

export interface Proxy {
  /** Host and port. */
  readonly address: string
  stop(): void
}

/** Carries the bytes of WebSockets to a server of Postgres on this machine, as Neon's proxy does. */
export async function startProxy({ WebSocketServer }: WebSocketServers, port: number): Promise<Proxy> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  await new Promise<void>((resolve) => server.once('listening', resolve))
  server.on('connection', (socket) => {
    const upstream = connect(port, '127.0.0.1')
    upstream.on('data', (data) => socket.send(data))
    upstream.on('close', () => socket.close())
    upstream.on('error', () => socket.close())
    socket.on('message', (data) => void upstream.write(data))
    socket.on('close', () => void upstream.destroy())
    socket.on('error', () => void upstream.destroy())
  })
  return {
    address: `127.0.0.1:${server.address().port}`,
    stop: () => {
      for (const client of server.clients) client.terminate()
      server.close()
    },
  }
}
