import { execFile } from 'node:child_process'
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ENTRIES } from '../../support/entries.ts'

// Every block of TypeScript in the documents and in the doc comments is a module that has to compile.

const run = promisify(execFile)
const root = resolve('.')
let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/docs-'))
  await copyFile('test/distribution/edge/cloudflare.d.ts', join(folder, 'cloudflare.d.ts'))
})
afterAll(() => rm(folder, { recursive: true }))

async function blocks(): Promise<{ from: string; code: string }[]> {
  const found: { from: string; code: string }[] = []
  for (const file of await files()) {
    const written = await readFile(file, 'utf8')
    const text = file.endsWith('.ts') ? written.replaceAll(/^ *\* ?/gm, '') : written
    for (const [, code = ''] of text.matchAll(/^```ts\n(.*?)^```/gms)) found.push({ from: file, code })
  }
  return found
}

async function files(): Promise<string[]> {
  const folders = await Promise.all(
    ['src', 'schema', 'docs'].map(async (name) =>
      (await readdir(name, { recursive: true })).map((file) => join(name, file)),
    ),
  )
  return ['README.md', 'CONTEXT.md', ...folders.flat()].filter((file) => /\.(ts|md)$/.test(file))
}

test('every example in the documents and the doc comments compiles', async () => {
  const all = await blocks()
  expect(all.length).toBeGreaterThan(10)
  for (const [place, { from, code }] of all.entries()) {
    const page = join(folder, from.replaceAll(/\W/g, '-'))
    await mkdir(page, { recursive: true })
    await copyFile('test/support/docs-app.ts', join(page, 'app.ts'))
    await writeFile(join(page, `block-${String(place).padStart(3, '0')}.ts`), `${code}\nexport {}\n`)
    // Other blocks of the page may import it by the name in its first line.
    const [, name] = /^\/\/ (\w+\.ts)\b/.exec(code) ?? []
    if (name) await writeFile(join(page, name), code)
  }
  await writeFile(
    join(folder, 'tsconfig.json'),
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      compilerOptions: {
        isolatedDeclarations: false,
        declaration: false,
        noPropertyAccessFromIndexSignature: false,
        types: [join(root, 'node_modules/@types/node')],
        paths: Object.fromEntries([...ENTRIES].map(([entry, file]) => [entry, [join(root, file)]])),
      },
      include: ['**/*.ts'],
    }),
  )
  const { stdout } = await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder]).catch(
    (error) => error,
  )
  expect(stdout).toBe('')
})
