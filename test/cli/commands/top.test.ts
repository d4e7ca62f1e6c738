import { countDenials } from 'drizzle-ratelimit/denials'
import { block, lockout } from 'drizzle-ratelimit/lockout'
import { beforeAll, describe, expect, test } from 'vitest'
import { cli } from '../../../src/cli/cli.ts'
import type { Screen } from '../../../src/cli/output.ts'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()
const LIMITS = ['--limits', 'test/cli/commands/limits.ts']

async function run(args: readonly string[], screen?: Screen) {
  const printed: string[] = []
  const print = (line: string) => void printed.push(line)
  const code = await cli(args, { log: print, error: print, screen })
  return { code, printed, words: printed.join('\n').replaceAll(/ {2,}/g, ' ').split('\n') }
}

beforeAll(async () => {
  const { db } = database
  const handed: Promise<unknown>[] = []
  const counting = {
    use: [countDenials({ every: 1 })],
    waitUntil: (work: Promise<unknown>) => void handed.push(work),
  }
  const limiter = Ratelimit.fixedWindow(5, '1h')
  const requests = new Ratelimit({ db, limiter, prefix: 'requests', ...counting })
  const exports = new Ratelimit({ db, limiter, prefix: 'exports', durable: true, ...counting })
  for (let i = 0; i < 7; i++) await requests.limit('user:1')
  for (let i = 0; i < 6; i++) await requests.limit('user:2')
  await requests.limit('\u001b[31mred')
  await requests.limit('😀'.repeat(50))
  await exports.limit('paid:1', { rate: 120, limiter: Ratelimit.fixedWindow(500, '1h') })
  await exports.limit('free:1')
  for (const each of handed) await each
})

describe('drizzle-ratelimit top', () => {
  test('shows the keys that use most and are denied most, by the limits of a module', async () => {
    const shown = ['--prefix', 'requests', '--prefix', 'exports']
    const { code, words } = await run(['top', database.url, ...LIMITS, ...shown])
    expect(code).toBe(0)
    expect(words).toEqual([
      'requests used left limit full in',
      'user:1 5 0 5 60 min',
      'user:2 5 0 5 60 min',
      '�[31mred 1 4 5 60 min',
      `${'😀'.repeat(47)}… 1 4 5 60 min`,
      ' denied',
      'user:1 2',
      'user:2 1',
      '',
      'exports used left limit full in',
      'paid:1 120 380 500 60 min',
      'free:1 1 4 5 60 min',
    ])
  })

  test('shows for how long a key is blocked', async () => {
    const { db } = database
    const limiter = lockout(5, '15m', { block: '1h' })
    const logins = new Ratelimit({ db, limiter, prefix: 'logins' })
    await logins.limit('ada', { rate: 5 })
    await block(logins, 'eve', '1d')
    await logins.limit('bob')
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'logins'])
    expect(words).toEqual([
      'logins used left limit full in',
      'eve 5 0 5 24 h blocked for 24 h',
      'ada 5 0 5 60 min blocked for 60 min',
      'bob 1 4 5 15 min',
    ])
  })

  test('shows some of the prefixes, and as many keys as asked', async () => {
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'requests', '--top', '1'])
    expect(words).toEqual(['requests used left limit full in', 'user:1 5 0 5 60 min', ' denied', 'user:1 2'])
  })

  test('shows denials only, without a module', async () => {
    const { words } = await run(['top', database.url, '--prefix', 'requests', '--prefix', 'exports'])
    expect(words).toEqual(['requests denied', 'user:1 2', 'user:2 1', '', 'exports denied', ' nothing'])
  })

  test('shows it again and again on a screen, until the user stops', async () => {
    const stopping = new AbortController()
    let times = 0
    const clear = () => {
      times++
      if (times === 3) stopping.abort()
    }
    const screen = { clear, signal: stopping.signal }
    const { code, printed } = await run(['top', database.url, ...LIMITS, '--every', '1ms'], screen)
    expect({ code, times, prints: printed.length }).toEqual({ code: 0, times: 3, prints: 3 })
    expect((await run(['top', database.url, ...LIMITS, '--once'], screen)).printed).toHaveLength(1)
    expect(times).toBe(3)
  })

  test.each<[string, string[], string]>([
    ['no limits', [], 'Which limits?'],
    ['an unknown prefix', [...LIMITS, '--prefix', 'other'], 'no limit for other'],
    ['a module without limits', ['--limits', 'test/support/clock.ts'], 'no default export'],
    [
      'a limit that does not say its table',
      ['--limits', 'test/cli/commands/untabled.ts'],
      '"requests" of --limits',
    ],
    ['no time', [...LIMITS, '--every', 'often'], '--every'],
    ['no number', [...LIMITS, '--top', 'many'], 'top must be a whole number'],
  ])('refuses %s', async (_, args, said) => {
    const { code, printed } = await run(['top', database.url, ...args])
    expect(code).toBe(2)
    expect(printed.join('\n')).toContain(said)
  })
})
