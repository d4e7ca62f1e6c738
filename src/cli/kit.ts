import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify, stripVTControlCharacters } from 'node:util'

const DEFAULT_CONFIGS = ['drizzle.config.ts', 'drizzle.config.js', 'drizzle.config.json']

/** The project's drizzle-kit with the project's configuration. */
export interface Kit {
  /** The folder of its migrations. */
  folder(): Promise<string>
  /** Creates an empty migration of that name and returns the path of its SQL. */
  generateCustom(name: string): Promise<string>
}

export async function findKit(config: string | undefined): Promise<Kit> {
  const bin = await findBin()
  const file = [config ?? DEFAULT_CONFIGS].flat().find((name) => existsSync(name))
  if (file === undefined) {
    throw new Error(
      `There is no ${config ?? 'drizzle.config'} in ${process.cwd()}: run this command in its folder, or add --config.`,
    )
  }
  return {
    folder: () => folderOf(bin, resolve(file)),
    generateCustom: async (name) => {
      const printed = await run(bin, ['generate', '--custom', `--name=${name}`, `--config=${file}`])
      const path = /➜\s+(\S.*\.sql)/.exec(printed)?.[1]
      if (path === undefined || !existsSync(path)) {
        throw new Error(`drizzle-kit did not print the path of the new migration:\n${printed}`)
      }
      return path
    },
  }
}

/** Finds drizzle-kit by its entry, because its exports do not include package.json. */
async function findBin(): Promise<string> {
  const project = createRequire(join(process.cwd(), 'package.json'))
  let home: string
  try {
    home = dirname(project.resolve('drizzle-kit'))
  } catch (cause) {
    throw new Error(`drizzle-kit is not installed in ${process.cwd()}.`, { cause })
  }
  const { bin } = JSON.parse(await readFile(join(home, 'package.json'), 'utf8'))
  return join(home, bin['drizzle-kit'])
}

/**
 * Finds the folder of the migrations. The configuration may be TypeScript, and each version of drizzle-kit
 * loads it in its own way. So drizzle-kit loads it here too: another configuration imports it and prints the
 * folder. The import has an absolute path and not a file URL, because drizzle-kit uses `require`.
 */
async function folderOf(bin: string, config: string): Promise<string> {
  const temporary = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-'))
  try {
    const asking = join(temporary, 'drizzle.config.ts')
    const text = `import * as loaded from ${JSON.stringify(config)}
      const config = loaded.default?.default ?? loaded.default ?? loaded
      console.log('OUT ' + JSON.stringify(config.out ?? 'drizzle'))
      process.exit(0)`
    await writeFile(asking, text)
    const printed = await run(bin, ['check', `--config=${asking}`])
    const out = /^OUT (".*")$/m.exec(printed)?.[1]
    if (out === undefined) throw new Error(`drizzle-kit could not read ${config}:\n${printed}`)
    return resolve(JSON.parse(out))
  } finally {
    await rm(temporary, { recursive: true })
  }
}

/** Runs drizzle-kit and returns its output. */
async function run(bin: string, args: readonly string[]): Promise<string> {
  const running = promisify(execFile)(process.execPath, [bin, ...args])
  // Without input, it cannot ask questions.
  running.child.stdin?.end()
  const { stdout, stderr } = await running.catch((error) => {
    throw new Error(`drizzle-kit failed:\n${error.stdout}${error.stderr}`)
  })
  return stripVTControlCharacters(stdout + stderr)
}
