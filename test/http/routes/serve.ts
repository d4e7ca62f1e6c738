import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll } from 'vitest'
import { type Database, Ratelimit, type RatelimitConfig } from '../../../src/index.ts'
import { watch } from '../../support/watch.ts'

/** Serves on this machine until the tests of the file end. Gives the address. */
export async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** The statuses of this many requests at once, and how often each came. */
export async function statusesOf(
  count: number,
  send: () => Promise<Response>,
): Promise<Record<number, number>> {
  const counts: Record<number, number> = {}
  for (const { status } of await Promise.all(Array.from({ length: count }, send))) {
    counts[status] = (counts[status] ?? 0) + 1
  }
  return counts
}

let prefixes = 0

/** A prefix that no other test has. */
export function newPrefix(): string {
  return `http ${prefixes++}`
}

/** So many an hour, in a window of the database's own time. */
export function perHour(
  db: Database,
  tokens: number,
  options: Partial<Pick<RatelimitConfig, 'onError'>> = {},
): Ratelimit {
  const limiter = Ratelimit.fixedWindow(tokens, '1h')
  return new Ratelimit({ db, limiter, prefix: newPrefix(), ...options } as RatelimitConfig)
}

/** A database whose answers come after the timeout. */
export function silent(db: Database): Database {
  return watch(db, () => new Promise(() => {})).db
}

/** A database that cannot be reached. */
export function away(db: Database): Database {
  const error = Object.assign(new Error('away'), { code: 'ECONNREFUSED', syscall: 'connect' })
  return watch(db, () => Promise.reject(error)).db
}
