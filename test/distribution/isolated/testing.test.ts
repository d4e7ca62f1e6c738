import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'

// Every block of docs/testing.md is a file of tests, and is run as it stands there.

mkdirSync('node_modules/.cache', { recursive: true })
const folder = await mkdtemp(resolve('node_modules/.cache/testing-'))
const files: [string, string][] = []
let heading = ''
for (const [, title, code] of readFileSync('docs/testing.md', 'utf8').matchAll(
  /^#+ (.*)$|^```ts\n([\s\S]*?)^```/gm,
)) {
  if (title) heading = title
  if (!code) continue
  const [, name] = /^\/\/ (\w+\.ts)\n/.exec(code) ?? []
  const file = join(folder, name ?? `${heading.replaceAll(/\W+/g, '-')}.ts`)
  writeFileSync(file, code)
  if (!name) files.push([heading, file])
}
const { client } = await import(join(folder, 'database.ts'))
afterAll(async () => {
  await client.close()
  await rm(folder, { recursive: true })
})

test('the page has tests', () => expect(files).toHaveLength(5))

for (const [title, file] of files) describe(title, async () => void (await import(file)))
