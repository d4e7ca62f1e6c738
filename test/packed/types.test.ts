import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, inject, test } from 'vitest'
import { run, runScript } from './kit.ts'

const consumer = inject('consumer')
const OPTIONS = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node', '--skipLibCheck', 'false']
/** TypeScript 7 has no node10. This is TypeScript 6, which api-extractor brings. */
const OLDER = '@microsoft/api-extractor/node_modules/typescript/bin/tsc'

beforeAll(async () => {
  for (const extension of ['ts', 'mts', 'cts']) {
    await copyFile('test/packed/consumer/types.ts', join(consumer, `types.${extension}`))
  }
})

/** The errors in the application and in this package, without those in the declarations of others. */
function own(said: string): string[] {
  return said
    .split('\n')
    .filter(
      (line) =>
        (/error TS/.test(line) && !line.includes('/node_modules/')) || /drizzle-ratelimit\//.test(line),
    )
}

describe.each(['cts', 'mts'])('an application in a .%s file', (extension) => {
  test.each(['node16', 'nodenext'])('compiles with --module %s', async (module) => {
    const said = await run(process.execPath, [tsc(), ...OPTIONS, '--module', module, `types.${extension}`])
    expect(own(said)).toEqual([])
  })
})

test('an application compiles with --moduleResolution node10', async () => {
  const node10 = ['--module', 'commonjs', '--moduleResolution', 'node10', '--ignoreDeprecations', '6.0']
  expect(own(await runScript(OLDER, [...OPTIONS, ...node10, 'types.ts']))).toEqual([])
})

function tsc(): string {
  return join(consumer, 'node_modules/typescript/bin/tsc')
}
