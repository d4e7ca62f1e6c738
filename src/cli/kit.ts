import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify, stripVTControlCharacters } from 'node:util'
import { optionOf } from './output.ts'

/** Those that drizzle-kit finds by itself. */
const KNOWN_CONFIGS = ['drizzle.config.ts', 'drizzle.config.js', 'drizzle.config.json']
const DEFAULT_CONFIGS = [...KNOWN_CONFIGS, 'drizzle.config.mjs']

/** The project's drizzle-kit with the project's configuration. */
export interface Kit {
  settings(): Promise<KitSettings>
  /** The SQL of the whole schema, as drizzle-kit sees it. */
  schemaSql(): Promise<string>
  /** Writes a migration for what has changed in the schema. Returns what drizzle-kit printed. */
  generate(): Promise<string>
  /** Creates an empty migration of that name and returns the path of its SQL. */
  generateCustom(name: string): Promise<string>
  /** A command for the user, with the option for the configuration where drizzle-kit needs it. */
  command(name: string): string
}

/** What the configuration says. A file of the schema may be a folder or a pattern. */
export interface KitSettings {
  readonly dialect: string
  /** The folder of the migrations. */
  readonly folder: string
  readonly schema: readonly string[]
  readonly tablesFilter: readonly string[]
  readonly schemaFilter: readonly string[]
}

export async function findKit(config: string | undefined): Promise<Kit> {
  const bin = await findBin()
  const file = [config ?? DEFAULT_CONFIGS].flat().find((name) => existsSync(name))
  if (file === undefined) {
    throw new Error(
      `There is no ${config ?? 'drizzle.config'} in ${process.cwd()}: run this command in its folder, or add --config.`,
    )
  }
  const withConfig = (...args: string[]) => runKit(bin, [...args, `--config=${file}`])
  return {
    settings: () => kitSettings(bin, resolve(file)),
    schemaSql: async () => {
      const printed = await withConfig('export')
      // After an error in the schema, drizzle-kit 0.31 ends with 0.
      if (/error/i.test(printed) && !/\bCREATE\b/.test(printed))
        throw new Error(`drizzle-kit failed:\n${printed}`)
      return printed
    },
    generate: () => withConfig('generate'),
    generateCustom: async (name) => {
      const printed = await withConfig('generate', '--custom', `--name=${name}`)
      const path = /➜\s+(\S.*\.sql)/.exec(printed)?.[1]
      if (path === undefined || !existsSync(path)) {
        throw new Error(`drizzle-kit did not print the path of the new migration:\n${printed}`)
      }
      return path
    },
    command: (name) =>
      `npx drizzle-kit ${name}${KNOWN_CONFIGS.includes(file) ? '' : ` ${optionOf('config', file)}`}`,
  }
}

/** Finds drizzle-kit by its entry, because its exports do not include package.json. */
async function findBin(): Promise<string> {
  const project = createRequire(join(process.cwd(), 'package.json'))
  let home: string
  try {
    home = dirname(project.resolve('drizzle-kit'))
  } catch (cause) {
    throw new Error(
      `drizzle-kit is not installed in ${process.cwd()}: run \`npm install --save-dev drizzle-kit\` there.`,
      { cause },
    )
  }
  const { bin } = JSON.parse(await readFile(join(home, 'package.json'), 'utf8'))
  return join(home, bin['drizzle-kit'])
}

/**
 * Reads the configuration. It may be TypeScript, and each version of drizzle-kit loads it in its own way. So
 * drizzle-kit loads it here too: another configuration imports it and prints what it says. The import has an
 * absolute path and not a file URL, because drizzle-kit uses `require`.
 */
async function kitSettings(bin: string, config: string): Promise<KitSettings> {
  const temporary = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-'))
  try {
    const asking = join(temporary, 'drizzle.config.ts')
    const text = `import * as loaded from ${JSON.stringify(config)}
      const config = loaded.default?.default ?? loaded.default ?? loaded
      const { dialect = '', out = 'drizzle', schema = [], tablesFilter = [], schemaFilter = [] } = config
      const lists = { schema: [schema].flat(), tablesFilter: [tablesFilter].flat(), schemaFilter: [schemaFilter].flat() }
      console.log('SETTINGS ' + JSON.stringify({ dialect, folder: out, ...lists }))
      process.exit(0)`
    await writeFile(asking, text)
    const printed = await runKit(bin, ['check', `--config=${asking}`])
    const settings = /^SETTINGS (.*)$/m.exec(printed)?.[1]
    if (settings === undefined) throw new Error(`drizzle-kit could not read ${config}:\n${printed}`)
    const read: KitSettings = JSON.parse(settings)
    return { ...read, folder: resolve(read.folder) }
  } finally {
    await rm(temporary, { recursive: true })
  }
}

/** Runs drizzle-kit and returns its output. */
async function runKit(bin: string, args: readonly string[]): Promise<string> {
  const running = promisify(execFile)(process.execPath, [bin, ...args])
  // Without input, it cannot ask questions.
  running.child.stdin?.end()
  const { stdout, stderr } = await running.catch((error) => {
    throw new Error(`drizzle-kit failed:\n${error.stdout}${error.stderr}`)
  })
  return stripVTControlCharacters(stdout + stderr)
}
