import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { WINGS } from '../../support/wings.ts'

// Slow: each test starts the type checker in a copy of the repository.

const run = promisify(execFile)

/** What `npm run without` prints, and whether it has failed. */
async function without(...args: string[]): Promise<string> {
  const command = ['--import', 'tsx', 'tools/without.ts', ...args]
  const { stdout } = await run(process.execPath, command, { maxBuffer: 2 ** 26 }).catch((error) => error)
  return stdout
}

describe('a wing can be removed', () => {
  test.each(WINGS)('without %s, the sources compile', async (wing) => {
    expect(await without(wing, '--sources')).toMatch(/^The rest is whole\.$/m)
  })

  test('without reports and what shows them, everything compiles and the tests of the rest pass', async () => {
    expect(await without('reports')).toMatch(/^The rest is whole\.$/m)
  })
})
