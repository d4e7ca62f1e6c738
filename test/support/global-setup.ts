import type { TestProject } from 'vitest/node'
import { startServer } from './server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    driver: 'pglite' | 'node-postgres'
    serverUrl: string
  }
}

/** One server for the whole project; each test file makes databases of its own on it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startServer()
  project.provide('serverUrl', server.url)
  return server.stop
}
