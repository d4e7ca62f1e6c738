import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

test('the report ends with the sums of what test files counted', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'summary-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  for (const [name, kills] of [
    ['one', 2],
    ['other', 3],
  ] as const) {
    await writeFile(
      join(folder, `${name}.test.js`),
      `afterAll(({}, file) => { file.meta.happened = { backends: { ended: ${kills} }, checks: { ${name}: 1 } } })
      test('passes', () => {})
      test.skip('does not run', () => {})`,
    )
  }
  await writeFile(join(folder, 'silent.test.js'), `test('counts nothing', () => {})`)
  const reporter = join(root, 'test/support/summary.ts')
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const args = ['run', '--root', folder, '--globals', `--reporter=${reporter}`]
  const { stdout } = await promisify(execFile)(process.execPath, [vitest, ...args])
  expect(stdout).toContain(
    [
      'What happened in 2 files:',
      '  backends: 5 ended',
      '  checks: 1 one, 1 other',
      '  tests: 2 passed, 2 skipped',
    ].join('\n'),
  )
})
