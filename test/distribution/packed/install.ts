import { execFile } from 'node:child_process'
import { cp, mkdir, readdir, symlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'

/** The names of this repository's packages for a version of Drizzle. */
const DRIZZLES = { '0.45': '', '1.0': '-v1' } as const

/** Folders with node_modules, in which projects can be. */
export interface Installed {
  /** Has everything, with that version of Drizzle. */
  readonly '0.45': string
  readonly '1.0': string
  /** Has this package and postgres.js. */
  readonly postgresJs: string
  /** Has this package alone. */
  readonly alone: string
}

/** Installs the tarball next to each version of Drizzle, in folders of `home`. */
export async function install(tarball: string, home: string): Promise<Installed> {
  const others = (await readdir('node_modules')).filter((name) => !/^(\.|drizzle-)/.test(name))
  for (const [version, suffix] of Object.entries(DRIZZLES)) {
    const modules = await linkPackages(join(home, version), others)
    // Node looks for the dependencies of a linked package next to the original, so packages that need Drizzle
    // are copied.
    for (const name of ['drizzle-kit', 'drizzle-orm']) {
      const from = resolve('node_modules', name + suffix)
      await cp(from, join(modules, name), { recursive: true, verbatimSymlinks: true })
    }
    await mkdir(join(modules, 'drizzle-ratelimit'))
    const to = ['-C', join(modules, 'drizzle-ratelimit'), '--strip-components=1']
    await promisify(execFile)('tar', ['-xzf', tarball, ...to])
  }
  const unpacked = join(home, '0.45/node_modules/drizzle-ratelimit')
  for (const [folder, packages] of Object.entries({ 'postgres-js': ['postgres'], alone: [] })) {
    const modules = await linkPackages(join(home, folder), packages)
    await symlink(unpacked, join(modules, 'drizzle-ratelimit'), 'junction')
  }
  return {
    '0.45': join(home, '0.45'),
    '1.0': join(home, '1.0'),
    postgresJs: join(home, 'postgres-js'),
    alone: join(home, 'alone'),
  }
}

async function linkPackages(root: string, names: readonly string[]): Promise<string> {
  const modules = join(root, 'node_modules')
  await mkdir(modules, { recursive: true })
  for (const name of names) await symlink(resolve('node_modules', name), join(modules, name), 'junction')
  return modules
}
