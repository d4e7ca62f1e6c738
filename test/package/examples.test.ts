import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const run = promisify(execFile)

test('the quickstart shows what it says', async () => {
  const { stdout } = await run('npm', ['run', '--silent', 'quickstart'])
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

test('an order that fails leaves the quota whole', async () => {
  const { stdout } = await run('node_modules/.bin/tsx', ['examples/orders.ts'])
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.replaceAll(/ {2,}/g, ' ')),
  ).toEqual([
    'at first quota 3, stock 2, orders 0',
    'ordered: number 1, 2 more today quota 2, stock 1, orders 1',
    'ordered: number 2, 1 more today quota 1, stock 0, orders 2',
    'failed: out of stock, and all of it is undone quota 1, stock 0, orders 2',
    'ten more lamps arrive quota 1, stock 10, orders 2',
    'ordered: number 4, 0 more today quota 0, stock 9, orders 3',
    'refused: tenant:1 may order again in 24 h quota 0, stock 9, orders 3',
  ])
})
