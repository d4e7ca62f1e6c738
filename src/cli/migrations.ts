import { readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { tablesAfter } from './tables-after.ts'

/** The content of a folder of migrations. */
export interface Migrations {
  /** The SQL of all migrations, in the order in which they run. */
  readonly sql: string
  /** The tables after all migrations, each as `schema.name`, and where the SQL has given it that name. */
  readonly tables: ReadonlyMap<string, number>
}

/** Reads the SQL alone: each version of drizzle-kit has a format of its own for what it notes next to it. */
export async function readMigrations(folder: string): Promise<Migrations> {
  const names = (await migrationNames(folder)).filter((name) => name.endsWith('.sql'))
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')))
  const sql = texts.join('\n')
  return { sql, tables: tablesAfter(sql) }
}

/**
 * Waits until the next migration will be the last. drizzle-kit 1.0 names migrations by the second, and runs
 * those of the same second in the order of their names.
 */
export async function nextSecond(folder: string): Promise<void> {
  const seconds = (await migrationNames(folder)).map((name) => basename(dirname(name)).slice(0, 14))
  const latest = seconds.findLast((second) => /^\d{14}$/.test(second))
  while (latest === new Date().toISOString().replaceAll(/\D/g, '').slice(0, 14)) await sleep(50)
}

async function migrationNames(folder: string): Promise<string[]> {
  const names = await readdir(folder, { recursive: true }).catch((error) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return names.toSorted()
}
