import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { build } from 'esbuild'
import { ENTRIES } from '../../support/entries.ts'
import { FLEETING, startServer } from '../../support/server.ts'
import { startAnswerer } from './answerer.ts'
import { startProxy, type WebSocketServers } from './proxy.ts'

// Runs checks.ts on each runtime with each driver that it can have: `npm run test:runtimes`, or with the
// runtimes that you name. Runtimes and drivers come from npm, into a folder of their own, because they are
// large.

const { platform } = process
const ARCH = process.arch === 'arm64' ? 'aarch64' : process.arch
const DENO = `@deno/${platform}-${process.arch}${platform === 'linux' ? '-glibc' : ''}`
const NODE = `node-${platform}-${process.arch}`

const EVERYWHERE = [
  ...['node-postgres', 'postgres-js', 'neon-serverless', 'vercel-postgres'],
  ...['neon-http', 'pg-proxy'],
]

interface Runtime {
  /** The npm package of its binary. */
  readonly package: string
  readonly binary: string
  readonly args?: readonly string[]
  readonly drivers: readonly string[]
}

function node(version: string): Runtime {
  const name = `node-${version}`
  return { package: `${name}@npm:${NODE}@${version}`, binary: `${name}/bin/node`, drivers: EVERYWHERE }
}

const RUNTIMES: Readonly<Record<string, Runtime>> = {
  node20: node('20.20.2'),
  node22: node('22.23.3'),
  node24: node('24.21.0'),
  node26: node('26.10.0'),
  bun: {
    package: `@oven/bun-${platform}-${ARCH}@1.4.5`,
    binary: `@oven/bun-${platform}-${ARCH}/bin/bun`,
    drivers: [...EVERYWHERE, 'bun-sql'],
  },
  deno: { package: `${DENO}@2.9.6`, binary: `${DENO}/deno`, args: ['run', '-A'], drivers: EVERYWHERE },
}

/** Beside those in package.json, which are installed in the same versions. */
const DRIVERS = ['@neondatabase/serverless@1.2.0', '@vercel/postgres@0.10.0', 'ws@8.23.0']
const OWN = ['drizzle-orm', 'pg', 'postgres', 'hono']

async function run(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<boolean> {
  const child = spawn(command, args, { stdio: 'inherit', env: { ...process.env, ...env } })
  return new Promise((resolve) => child.on('close', (code) => resolve(code === 0)))
}

async function inOwnVersion(name: string): Promise<string> {
  const { version } = JSON.parse(await readFile(`node_modules/${name}/package.json`, 'utf8'))
  return `${name}@${version}`
}

/** The checks and the package's sources in one file. */
async function buildChecks(folder: string): Promise<string> {
  const outfile = join(folder, 'checks.mjs')
  await build({
    entryPoints: ['test/distribution/runtimes/checks.ts'],
    outfile,
    ...{ bundle: true, format: 'esm', platform: 'node', target: 'es2022' },
    external: OWN,
    alias: Object.fromEntries([...ENTRIES].map(([entry, file]) => [entry, `./${file}`])),
  })
  return outfile
}

const [, , ...named] = process.argv
const chosen = Object.entries(RUNTIMES).filter(([name]) => named.length === 0 || named.includes(name))
const folder = await mkdtemp(join(tmpdir(), 'runtimes-'))
const failed: string[] = []
try {
  const packages = [
    ...chosen.map(([, runtime]) => runtime.package),
    ...DRIVERS,
    ...(await Promise.all(OWN.map(inOwnVersion))),
  ]
  const quiet = ['--no-audit', '--no-fund', '--ignore-scripts', '--legacy-peer-deps']
  if (!(await run('npm', ['install', ...quiet, '--prefix', folder, ...packages])))
    throw new Error('npm failed')
  const checks = await buildChecks(folder)
  const server = await startServer(FLEETING)
  const sockets = createRequire(join(folder, 'checks.mjs'))('ws') as WebSocketServers
  const proxy = await startProxy(sockets, Number(new URL(server.url).port))
  const answerer = await startAnswerer(server.url)
  try {
    for (const [name, { binary, args = [], drivers }] of chosen) {
      for (const DRIVER of drivers) {
        const addresses = { DATABASE_URL: server.url, PROXY: proxy.address, HTTP: answerer.address }
        const env = { ...addresses, DRIVER, RUNTIME: name }
        const passes = await run(join(folder, 'node_modules', binary), [...args, checks], env)
        if (!passes) failed.push(`${name} with ${DRIVER}`)
      }
    }
  } finally {
    proxy.stop()
    await answerer.stop()
    await server.stop()
  }
} finally {
  await rm(folder, { recursive: true, force: true })
}
console.log(failed.length === 0 ? 'All runtimes pass.' : `These fail: ${failed.join(', ')}`)
process.exitCode = failed.length
