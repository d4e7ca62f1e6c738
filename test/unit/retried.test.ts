import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'

const root = fileURLToPath(new URL('../..', import.meta.url))

test('the report names the tests that were tried again, with their first errors', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'retried-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  await writeFile(
    join(folder, 'races.test.js'),
    `let tries = 0
    describe('a race', () => {
      test('is lost twice', () => { if (++tries < 3) throw new Error('lost ' + tries) })
      test('is won', () => {})
    })`,
  )
  const reporter = join(root, 'test/support/retried.ts')
  const vitest = join(root, 'node_modules/vitest/vitest.mjs')
  const args = ['run', '--root', folder, '--globals', '--retry=2', `--reporter=${reporter}`]
  const { stdout } = await promisify(execFile)(process.execPath, [vitest, ...args])
  expect(stdout).toContain('Tests that were tried again: 1\n')
  expect(stdout).toContain('  races.test.js > a race > is lost twice, 2 more: lost 1')
  expect(stdout).not.toContain('is won')
})
