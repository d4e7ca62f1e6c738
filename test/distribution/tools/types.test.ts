import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ENTRIES } from '../../support/entries.ts'

// Slow: each test starts the type checker.

const run = promisify(execFile)
const root = resolve('.')
let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/types-'))
  await run(process.execPath, [
    'node_modules/typescript/bin/tsc',
    '-p',
    'tsconfig.build.json',
    '--outDir',
    join(folder, 'dist'),
  ])
})
afterAll(() => rm(folder, { recursive: true }))

/** What the type checker says of the type tests. */
async function check(drizzle: '0.45' | '1.0', from: string, name: string): Promise<string> {
  const installed = join(root, 'node_modules', drizzle === '1.0' ? 'drizzle-orm-v1' : 'drizzle-orm')
  const config = join(folder, `tsconfig.${name}.json`)
  const extension = from === root ? 'ts' : 'd.ts'
  await writeFile(
    config,
    JSON.stringify({
      extends: join(root, 'tsconfig.json'),
      compilerOptions: {
        types: [join(root, 'node_modules/@types/node')],
        paths: {
          'drizzle-orm': [join(installed, 'index.d.ts')],
          'drizzle-orm/*': [join(installed, '*.d.ts'), join(installed, '*/index.d.ts')],
          ...Object.fromEntries(
            [...ENTRIES].map(([entry, file]) => [entry, [join(from, file.replace(/ts$/, extension))]]),
          ),
        },
      },
      include: [],
      exclude: [],
      files: ['databases.ts', `drizzle-${drizzle}.ts`].map((file) =>
        join(root, 'test/distribution/types', file),
      ),
    }),
  )
  const { stdout } = await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', config]).catch(
    (error) => error,
  )
  return stdout
}

describe.each(['0.45', '1.0'] as const)(
  'every database of Drizzle %s is accepted, and no other',
  (drizzle) => {
    test('by the sources', async () => {
      expect(await check(drizzle, root, `sources-${drizzle}`)).toBe('')
    })
    test('by the emitted declarations', async () => {
      expect(await check(drizzle, join(folder, 'dist'), `emitted-${drizzle}`)).toBe('')
    })
  },
)
