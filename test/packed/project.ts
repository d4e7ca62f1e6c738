import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify, stripVTControlCharacters } from 'node:util'
import { inject } from 'vitest'

/** Someone's project, outside this repository. */
export interface Project {
  /** Runs a package's command. */
  run(command: 'drizzle-kit' | 'drizzle-ratelimit', ...args: string[]): Promise<Ended>
  /** Runs a file by Node, TypeScript by tsx. */
  node(file: string, options?: RunOptions): Promise<Ended>
  /** The SQL of the migrations in their order, by the names of their files. */
  migrations(): Promise<[name: string, sql: string][]>
  write(file: string, text: string): Promise<void>
}

export interface Ended {
  readonly code: number
  readonly printed: string
}

export interface RunOptions {
  readonly env?: NodeJS.ProcessEnv
  /** Ends the process. */
  readonly signal?: AbortSignal
}

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
  remove(): Promise<void>
}

/** Installs the tarball beside each version of Drizzle. */
export async function install(): Promise<Installed> {
  const home = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-projects-'))
  const others = (await readdir('node_modules')).filter((name) => !/^(\.|drizzle-)/.test(name))
  for (const [version, suffix] of Object.entries(DRIZZLES)) {
    const modules = await linkPackages(join(home, version), others)
    // Node looks for the dependencies of a linked package beside the original. So what needs Drizzle is copied.
    for (const name of ['drizzle-kit', 'drizzle-orm']) {
      const from = resolve('node_modules', name + suffix)
      await cp(from, join(modules, name), { recursive: true, verbatimSymlinks: true })
    }
    await mkdir(join(modules, 'drizzle-ratelimit'))
    const to = ['-C', join(modules, 'drizzle-ratelimit'), '--strip-components=1']
    await promisify(execFile)('tar', ['-xzf', inject('tarball'), ...to])
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
    remove: () => rm(home, { recursive: true }),
  }
}

async function linkPackages(root: string, names: readonly string[]): Promise<string> {
  const modules = join(root, 'node_modules')
  await mkdir(modules, { recursive: true })
  for (const name of names) await symlink(resolve('node_modules', name), join(modules, name), 'junction')
  return modules
}

/** Makes a project in one of the folders. */
export async function createProject(
  root: string,
  files: Readonly<Record<string, string>>,
  databaseUrl: string,
): Promise<Project> {
  const folder = await mkdtemp(join(root, 'project-'))
  const node = (args: readonly string[], { env, ...options }: RunOptions = {}) =>
    new Promise<Ended>((resolve) => {
      const all = { ...options, cwd: folder, env: { ...process.env, DATABASE_URL: databaseUrl, ...env } }
      const child = execFile(process.execPath, args, all, (error, stdout, stderr) => {
        resolve({ code: Number(error?.code ?? 0), printed: stripVTControlCharacters(stdout + stderr) })
      })
      child.stdin?.end()
    })
  const write = async (file: string, text: string) => {
    await mkdir(dirname(join(folder, file)), { recursive: true })
    await writeFile(join(folder, file), text)
  }
  for (const [file, text] of Object.entries(files)) await write(file, text)
  return {
    write,
    node: (file, options) => node(file.endsWith('.ts') ? ['--import', 'tsx', file] : [file], options),
    run: async (command, ...args) => {
      const home = join(root, 'node_modules', command)
      const { bin } = JSON.parse(await readFile(join(home, 'package.json'), 'utf8'))
      return node([join(home, bin[command]), ...args])
    },
    migrations: async () => {
      const names = (await readdir(join(folder, 'drizzle'), { recursive: true })).toSorted()
      const read = async (name: string): Promise<[string, string]> => [
        join('drizzle', name),
        await readFile(join(folder, 'drizzle', name), 'utf8'),
      ]
      return Promise.all(names.filter((name) => name.endsWith('.sql')).map(read))
    },
  }
}
