import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

test('the quickstart shows what it says', async () => {
  const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'quickstart'])
  for (const shown of [
    'checkTables finds 0 differences',
    'allowed, 4 remaining',
    'denied, retry after',
    'success: true',
    'inside: 750 remaining',
    'outside: 1000 remaining',
    "'user:123'",
  ]) {
    expect(stdout).toContain(shown)
  }
})
