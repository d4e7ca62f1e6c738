import type { TestProject } from 'vitest/node'
import { FLEETING, type Server, startServer } from './server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    driver: 'pglite' | 'node-postgres' | 'postgres-js'
    serverUrl: string
    /** Whether the next file of a process gets the database that another has left, without its rows. */
    sharesDatabases?: boolean
  }
}

// Each project loads this module for itself, but all in one process. So they share through a global.
declare global {
  var testServer: { readonly started: Promise<Server>; users: number } | undefined
}

/** One server for all projects; each test file makes databases of its own on it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  globalThis.testServer ??= { started: startServer(FLEETING), users: 0 }
  const shared = globalThis.testServer
  shared.users++
  const server = await shared.started
  project.provide('serverUrl', server.url)
  return async () => {
    if (--shared.users > 0) return
    globalThis.testServer = undefined
    await server.stop()
  }
}
