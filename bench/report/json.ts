import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { cpus, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import pg from 'pg'
import type { LoadResult } from '../loads/load.ts'
import { ROOT } from '../root.ts'
import type { Settings } from '../settings.ts'
import type { Judged } from './judge.ts'

/** The machine and the versions with which it was measured. */
export interface Surroundings {
  readonly date: string
  /** It ends in `-dirty` if files differ from the commit. */
  readonly commit: string
  /** The commit of the other checkout that took part. */
  readonly commitBefore?: string
  readonly cpus: number
  readonly cpu: string
  readonly memoryGB: number
  readonly versions: Readonly<Record<string, string>>
  readonly postgresSettings: Readonly<Record<string, string>>
}

const PACKAGES = [
  ...['drizzle-orm', 'pg', 'postgres', '@electric-sql/pglite', 'rate-limiter-flexible', 'ioredis'],
]
const POSTGRES_SETTINGS = ['shared_buffers', 'synchronous_commit', 'fsync', 'max_connections', 'jit']

export async function surroundings(serverUrl: string, before: string | undefined): Promise<Surroundings> {
  const { server_version, ...postgresSettings } = await postgresSays(serverUrl)
  const redis = await redisVersion()
  const packages = await Promise.all(
    PACKAGES.map(async (name) => [name, await versionIn(`node_modules/${name}/package.json`)]),
  )
  return {
    date: new Date().toISOString(),
    commit: await commitOf(fileURLToPath(ROOT)),
    ...(before && { commitBefore: await commitOf(before) }),
    cpus: cpus().length,
    cpu: cpus()[0]?.model ?? 'unknown',
    memoryGB: Math.round(totalmem() / 1024 ** 3),
    versions: {
      'drizzle-ratelimit': await versionIn('package.json'),
      node: process.versions.node,
      PostgreSQL: server_version ?? 'unknown',
      ...(redis && { Redis: redis }),
      ...Object.fromEntries(packages),
    },
    postgresSettings,
  }
}

/** The medians of all figures. Those of each round would make the file four times as long. */
export function json(
  surroundings: Surroundings,
  settings: Settings,
  results: readonly LoadResult[],
  targets: readonly Judged[],
): string {
  const loads = results.map(({ measured, ...load }) => ({
    ...load,
    measured: measured.map(({ name, median: { checks, admitted, ...figures } }) => ({ name, ...figures })),
  }))
  const content = { ...surroundings, settings, targets, loads }
  return `${JSON.stringify(content, (_, value) => (typeof value === 'number' ? rounded(value) : value), 2)}\n`
}

function rounded(value: number): number {
  return Number.isInteger(value) ? value : Number(value.toPrecision(3))
}

async function commitOf(checkout: string): Promise<string> {
  const flags = ['--always', '--dirty', '--exclude=*', '--abbrev=12']
  const { stdout } = await promisify(execFile)('git', ['describe', ...flags], { cwd: checkout })
  return stdout.trim()
}

async function postgresSays(url: string): Promise<Record<string, string>> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client
    .query<{ name: string; setting: string }>(
      'select name, current_setting(name) as setting from pg_settings where name = any($1)',
      [['server_version', ...POSTGRES_SETTINGS]],
    )
    .finally(() => client.end())
  return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))
}

async function redisVersion(): Promise<string | undefined> {
  const url = process.env['REDIS_URL']
  if (!url) return undefined
  const redis = new Redis(url)
  const info = await redis.info('server').finally(() => redis.disconnect())
  return /redis_version:(\S+)/.exec(info)?.[1]
}

async function versionIn(path: string): Promise<string> {
  const { version }: { version: string } = JSON.parse(await readFile(new URL(path, ROOT), 'utf8'))
  return version
}
