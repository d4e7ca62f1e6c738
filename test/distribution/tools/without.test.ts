import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

// Slow: it runs the type checker and tests in a copy of the repository. That the sources compile without any
// wing follows from what they import: test/unit/wings.test.ts.

const run = promisify(execFile)

test('without reports and what shows them, everything compiles and the tests of the rest pass', async () => {
  const command = ['--import', 'tsx', 'tools/without.ts', 'reports']
  const { stdout } = await run(process.execPath, command, { maxBuffer: 2 ** 26 }).catch((error) => error)
  expect(stdout).toMatch(/^The rest is whole\.$/m)
})
