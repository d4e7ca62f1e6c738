import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

// Slow: it runs the type checker and tests in copies of the repository.

const run = promisify(execFile)

test.each([
  ['reports and what shows them, everything compiles and the tests of the rest pass', 'reports'],
  ['each wing in turn, the sources compile', '--sources'],
])('without %s', async (_, argument) => {
  const command = ['--import', 'tsx', 'tools/without.ts', argument]
  const { stdout } = await run(process.execPath, command, { maxBuffer: 2 ** 26 }).catch((error) => error)
  expect(stdout).toMatch(/^The rest is whole\.$/m)
})
