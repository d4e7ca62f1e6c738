import { Child, scriptNextTo } from '../child.ts'
import { type Connections, connectTo } from './connections.ts'
import type { ProxyTarget } from './delaying-proxy.ts'

const PROXY = scriptNextTo(import.meta.url, 'delaying-proxy-child')

/**
 * Connections to the database through a network with this round trip. With a round trip of 0 they are direct.
 */
export async function withNetwork<T>(
  url: string,
  roundTripMs: number,
  work: (connections: Connections) => Promise<T>,
): Promise<T> {
  const proxy = roundTripMs > 0 ? new Child(PROXY) : undefined
  try {
    const connections = connectTo(proxy ? await through(proxy, url, roundTripMs) : url)
    return await work(connections).finally(() => connections.close())
  } finally {
    proxy?.end()
  }
}

async function through(proxy: Child, url: string, roundTripMs: number): Promise<string> {
  const { hostname, port } = new URL(url)
  const target: ProxyTarget = { host: hostname, port: Number(port || 5432), roundTripMs }
  const delayed = new URL(url)
  delayed.hostname = '127.0.0.1'
  delayed.port = String(await proxy.ask<number>(target))
  return delayed.href
}
