import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { TestProject } from 'vitest/node'

const run = promisify(execFile)

declare module 'vitest' {
  interface ProvidedContext {
    /** A folder outside of the repository, in which the packed package is installed. */
    readonly consumer: string
    /** The tarball, as npm would publish it. */
    readonly tarball: string
  }
}

/** Packs the package, which builds it, and unpacks it beside links to the repository's dependencies. */
export default async function setUp({ provide }: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-packed-'))
  const { stdout } = await run('npm', ['pack', '--json', '--silent', '--pack-destination', folder])
  const [{ filename }] = JSON.parse(stdout.slice(stdout.lastIndexOf('\n[') + 1))
  const tarball = join(folder, filename)
  const modules = join(folder, 'node_modules')
  await mkdir(join(modules, 'drizzle-ratelimit'), { recursive: true })
  await run('tar', ['-xzf', tarball, '-C', join(modules, 'drizzle-ratelimit'), '--strip-components=1'])
  for (const name of await readdir('node_modules')) {
    if (!name.startsWith('.')) await symlink(resolve('node_modules', name), join(modules, name), 'junction')
  }
  provide('consumer', folder)
  provide('tarball', tarball)
  return () => rm(folder, { recursive: true })
}
