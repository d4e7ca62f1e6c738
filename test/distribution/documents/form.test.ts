import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'

// Biome wraps code and leaves comments alone, so their width is checked here.

const MAX_COLUMNS = 112
const FOLDERS = ['test', 'src', 'schema', 'drizzle', 'examples', 'bench', 'mutants', 'tools']
const IS_COMMENT = /^\s*(\/\/|\/?\*|--)| \/\/ /

test(`no comment is wider than ${MAX_COLUMNS} columns`, async () => {
  const wide: string[] = []
  for (const folder of FOLDERS) {
    for (const name of await readdir(folder, { recursive: true })) {
      if (!/\.(ts|sql)$/.test(name)) continue
      const file = join(folder, name)
      for (const [i, line] of (await readFile(file, 'utf8')).split('\n').entries()) {
        if (line.length > MAX_COLUMNS && IS_COMMENT.test(line)) wide.push(`${file}:${i + 1}`)
      }
    }
  }
  expect(wide).toEqual([])
})

// Node runs them as the compiler writes them, and finds no package of that name.
test('benchmarks import the sources by their paths', async () => {
  const files = (await readdir('bench', { recursive: true })).filter((name) => name.endsWith('.ts'))
  const texts = await Promise.all(
    files.map(async (name) => [name, await readFile(join('bench', name), 'utf8')]),
  )
  const named = texts.filter(([, text]) => text?.includes("from 'drizzle-ratelimit"))
  expect(named.map(([name]) => name)).toEqual([])
})

/** The names in a union of strings. */
async function codesOf(file: string, type: string): Promise<string[]> {
  const union = new RegExp(`type ${type} =([\\s|'\\w]+)`).exec(await readFile(file, 'utf8'))?.[1] ?? ''
  return [...union.matchAll(/'(\w+)'/g)].map(([, code = '']) => code)
}

test('docs/errors.md has a section for each code and for no other', async () => {
  const warnings = await codesOf('src/kernel/base/warn.ts', 'WarningCode')
  const codes = [...(await codesOf('src/kernel/errors.ts', 'RatelimitErrorCode')), ...warnings]
  expect(warnings.length).toBeGreaterThan(0)
  const sections = [...(await readFile('docs/errors.md', 'utf8')).matchAll(/^### `(\w+)`$/gm)]
  expect(codes.length).toBeGreaterThan(10)
  expect(sections.map(([, code]) => code).toSorted()).toEqual(codes.toSorted())
})

test('a page is read in ten minutes, at 250 words a minute', async () => {
  const long: string[] = []
  for (const file of ['README.md', ...(await filesIn('docs'))]) {
    const words = (await readFile(file, 'utf8')).split(/\s+/).length
    if (words > 2500) long.push(`${file}: ${words}`)
  }
  expect(long).toEqual([])
})

/** Pages for contributors. */
const CONTRIBUTORS = /^docs\/(decisions|evidence|guarantees|performance-detail)/

test('README and the pages for users have at most 30,000 words together', async () => {
  const pages = (await readdir('docs')).filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)
  const texts = ['README.md', ...pages.filter((page) => !CONTRIBUTORS.test(page))]
  const words = await Promise.all(
    texts.map(async (page) => (await readFile(page, 'utf8')).trim().split(/\s+/)),
  )
  expect(words.flat().length).toBeLessThanOrEqual(30_000)
})

// A pool that Drizzle makes from an address has no listener, so a backend that ends would end the process.
test('each example has a pool that listens to its errors', async () => {
  const deaf: string[] = []
  for (const file of [
    'README.md',
    ...(await Promise.all(['docs', 'src', 'schema', 'examples'].map(filesIn))).flat(),
  ]) {
    const text = await readFile(file, 'utf8')
    // Over HTTP there is no connection to listen to.
    const makesPool = /drizzle\((process\.)?env\b/.test(text) && !text.includes('drizzle-orm/neon-http')
    const pools = text.match(/new (pg\.)?Pool\(/g) ?? []
    const listeners = text.match(/\bpool\.on\('error'/g) ?? []
    if (makesPool || pools.length > listeners.length) deaf.push(file)
  }
  expect(deaf).toEqual([])
})

async function filesIn(folder: string): Promise<string[]> {
  const names = await readdir(folder, { recursive: true })
  return names.filter((name) => /\.(ts|md)$/.test(name)).map((name) => join(folder, name))
}
