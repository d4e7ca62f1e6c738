import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'
import { rolldown } from 'rolldown'
import { beforeAll, expect, inject, test } from 'vitest'

// What docs/serverless.md says about bundles of one file.

const consumer = inject('consumer')
const input = join(consumer, 'bundled.js')
const external = ['drizzle-orm']

beforeAll(() => writeFile(input, "export { Ratelimit } from 'drizzle-ratelimit'"))

test('rolldown makes one file with codeSplitting: false', async () => {
  const bundle = await rolldown({ input, cwd: consumer, external: /^drizzle-orm/ })
  const one = { file: join(consumer, 'one.js') } as const
  await expect(bundle.generate(one)).rejects.toThrow('codeSplitting')
  const { output } = await bundle.generate({ ...one, codeSplitting: false })
  expect(output).toHaveLength(1)
})

test('esbuild makes one file', async () => {
  const options = { bundle: true, write: false, format: 'esm', platform: 'node' } as const
  const { outputFiles } = await build({ entryPoints: [input], absWorkingDir: consumer, external, ...options })
  expect(outputFiles).toHaveLength(1)
})
