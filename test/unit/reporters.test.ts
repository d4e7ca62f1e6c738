import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

const countingFile = (kind: string, ended: number) => `
  afterAll(({}, file) => { file.meta.happened = { backends: { ended: ${ended} }, checks: { ${kind}: 1 } } })
  test('passes', () => {})
  test.skip('does not run', () => {})`

const FILES = {
  one: countingFile('one', 2),
  other: countingFile('other', 3),
  races: `let tries = 0
    describe('a race', () => {
      test('is lost twice', () => { if (++tries < 3) throw new Error('lost ' + tries) })
      test('is won', () => {})
    })`,
}

test('a run ends with the sums of what its files counted, and with the tests that were tried again', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reporters-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  for (const [name, code] of Object.entries(FILES)) await writeFile(join(folder, `${name}.test.js`), code)
  const reporters = ['retried', 'summary'].map((name) => `--reporter=${root}test/support/${name}.ts`)
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const args = [vitest, 'run', '--root', folder, '--globals', '--retry=2', ...reporters]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  const sums = ['  backends: 5 ended', '  checks: 1 one, 1 other', '  tests: 2 passed, 2 skipped']
  expect(stdout).toContain(['What happened in 2 files:', ...sums].join('\n'))
  const again = ['Tests that were tried again: 1', '  races.test.js > a race > is lost twice, 2 more: lost 1']
  expect(stdout).toContain(again.join('\n'))
  expect(stdout).not.toContain('is won')
})
