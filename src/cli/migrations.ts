import { readdir, readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** The content of a folder of migrations. */
export interface Migrations {
  /** The tables after all migrations, each as `schema.name`. */
  readonly tables: readonly string[]
  /** The SQL of all migrations. */
  readonly sql: string
}

export async function readMigrations(folder: string): Promise<Migrations> {
  const names = await namesIn(folder)
  const snapshot = latestSnapshot(names)
  const sql = names
    .filter((name) => name.endsWith('.sql'))
    .map((name) => readFile(join(folder, name), 'utf8'))
  return {
    tables: snapshot === undefined ? [] : tablesIn(await readFile(join(folder, snapshot), 'utf8')),
    sql: (await Promise.all(sql)).join('\n'),
  }
}

/**
 * Waits until the next migration will be the last. drizzle-kit 1.0 names migrations by the second, and runs
 * those of the same second in the order of their names.
 */
export async function nextSecond(folder: string): Promise<void> {
  const latest = latestSnapshot(await namesIn(folder)) ?? ''
  const second = basename(dirname(latest)).slice(0, 14)
  if (!/^\d{14}$/.test(second)) return
  while (new Date().toISOString().replaceAll(/\D/g, '').slice(0, 14) <= second) await sleep(50)
}

async function namesIn(folder: string): Promise<string[]> {
  const names = await readdir(folder, { recursive: true }).catch((error) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  return names.toSorted()
}

/** The latest snapshot. 1.0 has one in the folder of each migration, 0.31 has all of them in `meta`. */
function latestSnapshot(names: readonly string[]): string | undefined {
  const snapshots = names.filter((name) => name.endsWith('snapshot.json'))
  const isOld = (name: string) => basename(dirname(name)) === 'meta'
  return snapshots.findLast((name) => !isOld(name)) ?? snapshots.findLast(isOld)
}

interface NamedTable {
  readonly schema?: string
  readonly name: string
}

/** A snapshot: 0.31 writes `tables`, 1.0 writes `ddl`. */
interface Snapshot {
  readonly tables?: Readonly<Record<string, NamedTable>>
  readonly ddl?: readonly (NamedTable & { readonly entityType: string })[]
}

function tablesIn(text: string): string[] {
  const { tables = {}, ddl = [] }: Snapshot = JSON.parse(text)
  const found = [...Object.values(tables), ...ddl.filter(({ entityType }) => entityType === 'tables')]
  return found.map(({ schema, name }) => `${schema || 'public'}.${name}`)
}
