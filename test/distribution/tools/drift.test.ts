import { describe, expect, test } from 'vitest'
import { copyForKit, type KitProject } from './kit.ts'

// Slow: each test starts drizzle-kit.

/** The files that drizzle-kit would add or change in drizzle/, and what it says about it. */
async function generate(project: KitProject): Promise<{ written: string[]; said: string }> {
  const before = await project.read('drizzle')
  const said = await project.kit('generate')
  const after = await project.read('drizzle')
  return { written: Object.keys(after).filter((name) => after[name] !== before[name]), said }
}

// Before what may be a rename it wants to ask; without an answer it writes nothing and still exits with
// 0.
const NOTHING = { written: [], said: expect.stringContaining('No schema changes, nothing to migrate') }

test('drizzle-kit finds no difference between the migrations and the schema', async () => {
  expect(await generate(await copyForKit())).toEqual(NOTHING)
})

test('drizzle-kit finds nothing wrong with the migrations', async () => {
  expect(await (await copyForKit()).kit('check')).toContain("Everything's fine")
})

describe('drizzle-kit finds', () => {
  test('a changed column, for which it writes a migration', async () => {
    const project = await copyForKit()
    await project.edit(
      'schema/table.ts',
      "doublePrecision('tokens' as string)",
      "doublePrecision('tokens' as string).notNull()",
    )
    const { written, said } = await generate(project)
    expect(said).not.toEqual(NOTHING.said)
    const migration = written.find((name) => /^0002_.*\.sql$/.test(name))
    expect((await project.read('drizzle'))[String(migration)]).toContain(
      'ALTER TABLE "rate_limit_durable" ALTER COLUMN "tokens" SET NOT NULL',
    )
  })

  test.each([
    ['a new column', 'return {\n', "return {\n    extra: text('extra' as string),\n"],
    ['another primary key', '[table.prefix, table.key] }', '[table.key, table.prefix] }'],
    ['a renamed table', 'declare(name,', "declare(name + '_2',"],
  ])('%s', async (_, piece, replacement) => {
    const project = await copyForKit()
    await project.edit('schema/table.ts', piece, replacement)
    expect(await generate(project)).not.toEqual(NOTHING)
  })
})
