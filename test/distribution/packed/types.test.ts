import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, inject, test } from 'vitest'
import { run, runScript } from './kit.ts'

const consumer = inject('consumer')
const OPTIONS = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node']
/** TypeScript 7 has no node10. This is TypeScript 6, which api-extractor brings. */
const OLDER = '@microsoft/api-extractor/node_modules/typescript/bin/tsc'

beforeAll(async () => {
  for (const extension of ['ts', 'mts', 'cts']) {
    await copyFile('test/distribution/packed/consumer/types.ts', join(consumer, `types.${extension}`))
  }
})

test('an application compiles with --module node16, by import and by require', async () => {
  const options = [...OPTIONS, '--module', 'node16', '--skipLibCheck']
  expect(await run(process.execPath, [tsc(), ...options, 'types.mts', 'types.cts'])).toBe('')
})

test('an application compiles with --moduleResolution node10', async () => {
  const node10 = ['--module', 'commonjs', '--moduleResolution', 'node10', '--ignoreDeprecations', '6.0']
  expect(await runScript(OLDER, [...OPTIONS, ...node10, '--skipLibCheck', 'types.ts'])).toBe('')
})

// Slow, and the same in each way to resolve them.
test('an application compiles with --module nodenext, with a check of all declarations', async () => {
  const options = [...OPTIONS, '--module', 'nodenext', '--skipLibCheck', 'false']
  const said = await run(process.execPath, [tsc(), ...options, 'types.mts', 'types.cts'])
  // Without the errors in the declarations of others. A clone of this repository may have the package's name.
  const own = /^(?!.*node_modules).*error TS|node_modules\/drizzle-ratelimit\//
  expect(said.split('\n').filter((line) => own.test(line))).toEqual([])
})

function tsc(): string {
  return join(consumer, 'node_modules/typescript/bin/tsc')
}
