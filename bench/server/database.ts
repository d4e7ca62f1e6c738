import { randomUUID } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import pg from 'pg'
import { ROOT } from '../root.ts'

/** Makes a migrated database for one load, so that no load finds what another has left. */
export interface Database {
  readonly url: string
  drop(): Promise<void>
}

export async function createDatabase(serverUrl: string): Promise<Database> {
  const name = `bench_${randomUUID().replaceAll('-', '')}`
  await run(serverUrl, `create database ${name}`)
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  await run(url.href, await migrations())
  return { url: url.href, drop: () => run(serverUrl, `drop database ${name} with (force)`) }
}

/** The migrations that users of the package run, in order. */
export async function migrations(): Promise<string> {
  const folder = new URL('drizzle/', ROOT)
  const files = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort()
  return (await Promise.all(files.map((name) => readFile(new URL(name, folder), 'utf8')))).join('\n')
}

async function run(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(sql).finally(() => client.end())
}
