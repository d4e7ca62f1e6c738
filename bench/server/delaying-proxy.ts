import { connect, createServer, type Socket } from 'node:net'

export interface ProxyTarget {
  readonly host: string
  readonly port: number
  /** Half of it is added on each way. */
  readonly roundTripMs: number
}

/**
 * Stands for a network. It passes on each piece half a round trip later, in order. Resolves to its port.
 */
export function startDelayingProxy({ host, port, roundTripMs }: ProxyTarget): Promise<number> {
  const after = delayed(roundTripMs / 2)
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (near) => {
    const far = connect({ host, port, noDelay: true, allowHalfOpen: true })
    pass(near, far, after)
    pass(far, near, after)
  })
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (address && typeof address === 'object') resolve(address.port)
      else reject(new Error('The proxy has no port.'))
    })
  })
}

type After = (deliver: () => void) => void

function pass(from: Socket, to: Socket, after: After): void {
  from.on('data', (chunk) => after(() => to.write(chunk)))
  from.on('end', () => after(() => to.end()))
  from.on('error', () => to.destroy())
}

/** A timer of Node is late by up to two milliseconds. Within that time the proxy looks again and again. */
const TIMER_MS = 2

/**
 * Does things a fixed time later. One queue serves all connections, because things arrive in the order in which
 * they are due.
 */
function delayed(ms: number): After {
  const queue: { readonly due: number; readonly deliver: () => void }[] = []
  const look = () => {
    for (let first = queue[0]; first && first.due <= performance.now(); first = queue[0]) {
      queue.shift()
      first.deliver()
    }
    lookAgain()
  }
  const lookAgain = () => {
    const [first] = queue
    if (!first) return
    const rest = first.due - performance.now()
    if (rest > TIMER_MS) setTimeout(look, Math.floor(rest - TIMER_MS))
    else setImmediate(napAndLook)
  }
  const napAndLook = () => {
    nap()
    look()
  }
  return (deliver) => {
    queue.push({ due: performance.now() + ms, deliver })
    if (queue.length === 1) lookAgain()
  }
}

const NAP_MS = 0.05
const nothing = new Int32Array(new SharedArrayBuffer(4))

/** Leaves the core to other processes. A loop that only looks would take a core from the server. */
function nap(): void {
  Atomics.wait(nothing, 0, 0, NAP_MS)
}
