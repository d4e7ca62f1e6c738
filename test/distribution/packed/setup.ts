import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { TestProject } from 'vitest/node'
import { FLEETING, startServer } from '../../support/server.ts'
import { type Installed, install } from './install.ts'

const run = promisify(execFile)

declare module 'vitest' {
  interface ProvidedContext {
    /** A folder outside of the repository, in which the packed package is installed. */
    readonly consumer: string
    /** The tarball, as npm would publish it. */
    readonly tarball: string
    /** Folders in which projects can be. */
    readonly installed: Installed
  }
}

/**
 * Packs the package, which builds it, and unpacks it next to links to the repository's dependencies.
 *
 * The server is a new one. drizzle-kit 0.31 asks for the columns of a primary key in no order. Where other
 * tests have made some thousand things, it gets them in another order, and `push` changes the key.
 */
export default async function setUp({ provide }: TestProject): Promise<() => Promise<void>> {
  const server = await startServer(FLEETING)
  provide('serverUrl', server.url)
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-packed-'))
  const { stdout } = await run('npm', ['pack', '--json', '--silent', '--pack-destination', folder])
  const [{ filename }] = JSON.parse(stdout.slice(stdout.lastIndexOf('\n[') + 1))
  const tarball = join(folder, filename)
  const consumer = join(folder, 'consumer')
  const modules = join(consumer, 'node_modules')
  await mkdir(join(modules, 'drizzle-ratelimit'), { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', join(modules, 'drizzle-ratelimit'), '--strip-components=1'])
  for (const name of await readdir('node_modules')) {
    if (!name.startsWith('.')) await symlink(resolve('node_modules', name), join(modules, name), 'junction')
  }
  provide('consumer', consumer)
  provide('tarball', tarball)
  provide('installed', await install(tarball, join(folder, 'projects')))
  return async () => {
    await server.stop()
    await rm(folder, { recursive: true })
  }
}
