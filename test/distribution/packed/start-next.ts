import { spawn } from 'node:child_process'
import { cp } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, expect, inject } from 'vitest'
import { runScript } from './kit.ts'

const NEXT = 'next/dist/bin/next'

/** An application that Next has built and started with the packed package. */
export interface Application {
  readonly url: string
  /** What the build said. */
  readonly built: string
  /** The lines of the running application so far. */
  readonly printed: readonly string[]
}

/** Builds and starts the application in this folder, until the tests of the file end. */
export async function startNext(name: string, variables: Record<string, string>): Promise<Application> {
  const folder = join(inject('consumer'), name)
  await cp(join('test/distribution/packed', name), folder, { recursive: true })
  const env = { ...variables, NEXT_TELEMETRY_DISABLED: '1' }
  const built = await runScript(NEXT, ['build', folder], env)
  expect(built).toContain('Compiled successfully')
  const server = spawn(
    process.execPath,
    [resolve('node_modules', NEXT), 'start', folder, '-H', '127.0.0.1', '-p', '0'],
    { env: { ...process.env, ...env, NODE_ENV: 'production' } },
  )
  afterAll(() => void server.kill())
  const printed: string[] = []
  const url = await new Promise<string>((found, reject) => {
    for (const stream of [server.stdout, server.stderr]) {
      createInterface(stream).on('line', (line) => {
        printed.push(line)
        const [address] = /http:\/\/127\.0\.0\.1:\d+/.exec(line) ?? []
        if (address) found(address)
      })
    }
    server.once('exit', () => reject(new Error(printed.join('\n'))))
  })
  return { url, built, printed }
}
