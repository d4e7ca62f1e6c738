import { copyFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, expect, inject, test } from 'vitest'
import { run, runScript } from './kit.ts'

const consumer = inject('consumer')
const OPTIONS = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node']
/** TypeScript 7 has no node10. This is TypeScript 6, which api-extractor brings. */
const OLDER = '@microsoft/api-extractor/node_modules/typescript/bin/tsc'

const FILES = ['types', 'limits'].flatMap((file) => [`${file}.mts`, `${file}.cts`])
/** A module whose declarations the compiler writes itself, as it does by default for a new project. */
const LIMITS = `
import { Ratelimit } from 'drizzle-ratelimit'
import { calendarWindow } from 'drizzle-ratelimit/calendar'
import { lockout } from 'drizzle-ratelimit/lockout'
export const plans = { none: calendarWindow(0, 'month'), free: Ratelimit.fixedWindow(5, '1h') }
export const logins = lockout(5, '15m', { block: '1m' })
export const staff = Ratelimit.unlimited()
`

beforeAll(async () => {
  for (const extension of ['ts', 'mts', 'cts']) {
    await copyFile('test/distribution/packed/consumer/types.ts', join(consumer, `types.${extension}`))
    await writeFile(join(consumer, `limits.${extension}`), LIMITS)
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
test('an application compiles with --module nodenext, with a check of all declarations and its own', async () => {
  const options = [...OPTIONS, '--module', 'nodenext', '--skipLibCheck', 'false', '--declaration']
  const said = await run(process.execPath, [tsc(), ...options, ...FILES])
  // Without the errors in the declarations of others. A clone of this repository may have the package's name.
  const own = /^(?!.*node_modules).*error TS|node_modules\/drizzle-ratelimit\//
  expect(said.split('\n').filter((line) => own.test(line))).toEqual([])
})

function tsc(): string {
  return join(consumer, 'node_modules/typescript/bin/tsc')
}
