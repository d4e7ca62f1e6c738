import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { useDatabase } from '../support/databases.ts'
import type { Fault } from '../support/proxy.ts'
import { endBackends, useProxy } from './kit.ts'

// Each new connection of postgres.js asks for types, and nobody catches it if that fails. docs/transactions.md
// says which option mends it. If the first tests fail, postgres.js does not need it any more.

const database = useDatabase()
const network = useProxy(database)
const WORKER = fileURLToPath(import.meta.resolve('./postgres-js-worker.ts'))
const OWN = `pg_stat_activity where application_name = 'postgres.js' and datname = current_database()`

/** Breaks the first connection in its first request after the start. Returns how the process ends. */
async function ending(fault: Fault, types: string): Promise<{ code: unknown; said: string }> {
  let isNext = true
  network.proxy.fault = (request) => {
    if (!isNext || !/select/i.test(request.toString('latin1'))) return 'pass'
    isNext = false
    return fault
  }
  const running = promisify(execFile)(process.execPath, ['--import', 'tsx', WORKER, network.url, types])
  const ended = running.then(
    ({ stdout }) => ({ code: 0, said: stdout.trim() }),
    ({ code, stderr }) => ({ code, said: stderr }),
  )
  if (fault === 'stall before') {
    await expect.poll(() => isNext).toBe(false)
    await expect.poll(() => endBackends(database, OWN)).toBe(1)
  }
  try {
    return await ended
  } finally {
    running.child.kill('SIGKILL')
  }
}

const BREAKS = [
  ['its connection is cut', 'cut before'],
  ['its connection is cut before the answer', 'cut after'],
  ['its backend ends', 'stall before'],
] as const

test.each(BREAKS)('the process ends when %s while it asks for types', async (_, fault) => {
  const { code, said } = await ending(fault, 'types')
  expect(said).toMatch(/CONNECTION_CLOSED|ECONNRESET|57P01/)
  expect(code).toBe(1)
})

test.each(BREAKS)('with fetch_types: false the process goes on when %s', async (_, fault) => {
  expect(await ending(fault, 'no types')).toEqual({ code: 0, said: 'granted' })
})
