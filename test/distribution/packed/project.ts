import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { stripVTControlCharacters } from 'node:util'

/** Someone's project, outside this repository. */
export interface Project {
  /** Runs a package's command. */
  run(command: 'drizzle-kit' | 'drizzle-ratelimit', ...args: string[]): Promise<Ended>
  /** Runs a file by Node, TypeScript by tsx. */
  node(file: string, options?: RunOptions): Promise<Ended>
  /** The SQL of the migrations in their order, by the names of their files. */
  migrations(): Promise<[name: string, sql: string][]>
  /** The texts of all files by their names. */
  texts(): Promise<Record<string, string>>
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
    texts: async () => {
      const found = await readdir(folder, { recursive: true, withFileTypes: true })
      const paths = found.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name))
      const texts = paths.map(async (path) => [relative(folder, path), await readFile(path, 'utf8')] as const)
      return Object.fromEntries(await Promise.all(texts))
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
