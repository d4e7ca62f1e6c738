import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { readMigrations } from '../../../src/cli/migrations.ts'

// Which tables a folder of migrations makes. It is read from the SQL, whatever drizzle-kit notes next to it.

async function tablesOf(files: Readonly<Record<string, string>>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
  const { tables } = await readMigrations(folder)
  return [...tables.keys()].toSorted()
}

test('of both versions of drizzle-kit, with notes that nobody can read', async () => {
  const sql = 'CREATE TABLE "limits"."quick" (\n\t"prefix" text NOT NULL\n);\n--> statement-breakpoint\n'
  expect(await tablesOf({ '0000_a.sql': sql, 'meta/0000_snapshot.json': '?' })).toEqual(['limits.quick'])
  expect(
    await tablesOf({ '20261125151709_a/migration.sql': sql, '20261125151709_a/snapshot.json': '?' }),
  ).toEqual(['limits.quick'])
})

test('the last migration decides', async () => {
  const made = 'CREATE TABLE "quick" ();'
  expect(await tablesOf({ '0000_a.sql': made, '0001_b.sql': 'DROP TABLE "quick" CASCADE;' })).toEqual([])
  expect(await tablesOf({ '0001_b.sql': made, '0000_a.sql': 'DROP TABLE IF EXISTS "quick";' })).toEqual([
    'public.quick',
  ])
})

test.each([
  ['ALTER TABLE "quick" RENAME TO "fast";', 'public.fast'],
  ['ALTER TABLE "public"."quick" SET SCHEMA "limits";', 'limits.quick'],
  ['ALTER TABLE "quick" SET SCHEMA "limits"; ALTER TABLE "limits"."quick" RENAME TO "fast"', 'limits.fast'],
  ['ALTER TABLE "quick" RENAME COLUMN "key" TO "k";', 'public.quick'],
  ['ALTER TABLE "quick" SET UNLOGGED;', 'public.quick'],
  ['DROP TABLE "other"."quick";', 'public.quick'],
  ['drop table if exists quick; create unlogged table if not exists Limits . Fast ()', 'limits.fast'],
  ['DROP TABLE quick; CREATE TABLE "The ""B"""();', 'public.The "B"'],
])('after %s', async (sql, table) => {
  expect(
    await tablesOf({ '0000_a.sql': 'CREATE TABLE IF NOT EXISTS "quick" ();', '0001_b.sql': sql }),
  ).toEqual([table])
})

test('no folder', async () => {
  expect([...(await readMigrations('nowhere')).tables]).toEqual([])
})
