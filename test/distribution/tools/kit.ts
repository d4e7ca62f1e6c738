import { execFile } from 'node:child_process'
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'

const repository = fileURLToPath(new URL('../../..', import.meta.url))

/** What drizzle-kit reads of this repository, in a folder where it may write. */
export interface KitProject {
  readonly folder: string
  /** Runs drizzle-kit and returns what it printed. */
  kit(...args: string[]): Promise<string>
  /** The texts of all files in a folder and below, by their names. */
  read(path: string): Promise<Record<string, string>>
  write(path: string, text: string): Promise<void>
  /** Replaces a piece of a file's text. */
  edit(path: string, piece: string, replacement: string): Promise<void>
}

/** A copy of the schema, the migrations and drizzle-kit's configuration, for one test. */
export async function copyForKit(): Promise<KitProject> {
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-kit-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  for (const name of ['schema', 'src', 'drizzle', 'drizzle.config.ts', 'package.json']) {
    await cp(join(repository, name), join(folder, name), { recursive: true })
  }
  await symlink(join(repository, 'node_modules'), join(folder, 'node_modules'), 'junction')

  const write = (path: string, text: string) => writeFile(join(folder, path), text)
  return {
    folder,
    write,
    kit: async (...args) => {
      // Not the one in .bin, which may belong to the other version: both have the same name.
      const bin = join(folder, 'node_modules/drizzle-kit/bin.cjs')
      const running = promisify(execFile)(process.execPath, [bin, ...args], { cwd: folder })
      // It asks questions where it can.
      running.child.stdin?.end()
      const { stdout, stderr } = await running
      return stdout + stderr
    },
    read: async (path) => {
      const files = await readdir(join(folder, path), { recursive: true, withFileTypes: true })
      const texts = files
        .filter((file) => file.isFile())
        .map(async ({ parentPath, name }) => [name, await readFile(join(parentPath, name), 'utf8')] as const)
      return Object.fromEntries(await Promise.all(texts))
    },
    edit: async (path, piece, replacement) => {
      const text = await readFile(join(folder, path), 'utf8')
      if (!text.includes(piece)) throw new Error(`${path} has no ${piece}`)
      await write(path, text.replaceAll(piece, replacement))
    },
  }
}
