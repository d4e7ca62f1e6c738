import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tell } from './happened.ts'

/**
 * What happens to a request: to what a client sends in one piece.
 *
 * - `cut before`: the connection breaks, and the server never sees the request.
 * - `cut after`: the server gets the request; the connection breaks instead of the answer.
 * - `stall before`, `stall after`: the same, but nothing breaks, and the client waits forever.
 * - a number: the request arrives this many milliseconds later.
 */
export type Fault = 'pass' | 'cut before' | 'cut after' | 'stall before' | 'stall after' | number

/** What happens to a new connection: `reset` breaks it at once, `refuse` is a port without a server. */
export type Welcome = 'accept' | 'reset' | 'refuse'

/** Stands for the network between a client and a server. */
export class FaultyProxy {
  /** Chooses what happens to a request. */
  fault: (request: Buffer) => Fault = () => 'pass'
  readonly #target: { readonly host: string; readonly port: number }
  readonly #connections = new Set<Connection>()
  #server: Server
  #welcome: Welcome = 'accept'
  #port = 0

  private constructor(target: URL) {
    this.#target = { host: target.hostname, port: Number(target.port) }
    this.#server = this.#listening()
  }

  /** Starts a proxy in front of the server at `url`. */
  static async start(url: string): Promise<FaultyProxy> {
    const proxy = new FaultyProxy(new URL(url))
    await proxy.#listen()
    return proxy
  }

  /** The server's URL by way of the proxy. */
  through(url: string): string {
    const other = new URL(url)
    other.hostname = '127.0.0.1'
    other.port = String(this.#port)
    return other.href
  }

  get connections(): number {
    return this.#connections.size
  }

  async welcome(next: Welcome): Promise<void> {
    const before = this.#welcome
    this.#welcome = next
    if (next === 'refuse' && before !== 'refuse') {
      this.cutAll()
      await closed(this.#server)
    } else if (next !== 'refuse' && before === 'refuse') {
      this.#server = this.#listening()
      await this.#listen()
    }
  }

  /** Breaks all connections, on both sides. */
  cutAll(): void {
    tell('connections', 'broken', this.#connections.size)
    for (const connection of this.#connections) connection.cut()
  }

  /** The server's side of all connections is gone, and the clients do not learn it. */
  halfOpenAll(): void {
    tell('connections', 'half open', this.#connections.size)
    for (const connection of this.#connections) connection.loseServer()
  }

  close(): Promise<void> {
    return this.welcome('refuse')
  }

  #listening(): Server {
    return createServer({ noDelay: true }, (near) => {
      if (this.#welcome !== 'accept') {
        tell('connections', 'reset while they were made')
        near.on('error', () => {})
        near.resetAndDestroy()
        return
      }
      const far = connect({ ...this.#target, noDelay: true })
      const connection = new Connection(near, far, (request) => this.#faultOf(request))
      this.#connections.add(connection)
      near.once('close', () => this.#connections.delete(connection))
    })
  }

  #faultOf(request: Buffer): Fault {
    const fault = this.fault(request)
    if (fault !== 'pass') tell('requests', typeof fault === 'number' ? 'late' : fault)
    return fault
  }

  async #listen(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1')
    await once(this.#server, 'listening')
    const address = this.#server.address()
    if (address && typeof address === 'object') this.#port = address.port
  }
}

class Connection {
  readonly #near: Socket
  readonly #far: Socket
  #answers: 'pass' | 'cut' | 'drop' = 'pass'
  #isStalled = false
  #delays = Promise.resolve()

  constructor(near: Socket, far: Socket, fault: (request: Buffer) => Fault) {
    this.#near = near
    this.#far = far
    near.on('data', (request) => this.#forward(request, this.#isStalled ? 'stall before' : fault(request)))
    far.on('data', (answer) => {
      if (this.#answers === 'pass') near.write(answer)
      else if (this.#answers === 'cut') this.cut()
    })
    near.on('error', () => {}).on('close', () => far.destroy())
    far.on('error', () => {}).on('close', () => this.#answers !== 'drop' && near.destroy())
  }

  cut(): void {
    this.#far.destroy()
    this.#near.resetAndDestroy()
  }

  loseServer(): void {
    this.#isStalled = true
    this.#answers = 'drop'
    this.#far.destroy()
  }

  #forward(request: Buffer, fault: Fault): void {
    if (fault === 'cut before') this.cut()
    if (fault === 'cut after') this.#answers = 'cut'
    if (fault === 'stall after') this.#answers = 'drop'
    if (fault === 'stall before') this.#isStalled = true
    if (this.#isStalled || this.#far.destroyed) return
    if (typeof fault === 'number') this.#delays = this.#delays.then(() => sleep(fault))
    this.#delays = this.#delays.then(() => {
      if (!this.#far.destroyed) this.#far.write(request)
    })
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
