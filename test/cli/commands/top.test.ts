import { countDenials } from 'drizzle-ratelimit/denials'
import { block, lockout } from 'drizzle-ratelimit/lockout'
import { afterEach, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { cli } from '../../../src/cli/cli.ts'
import type { Screen, ScreenListener } from '../../../src/cli/output.ts'
import { Ratelimit } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'

const database = useDatabase()
const LIMITS = ['--limits', 'test/cli/commands/limits.js']

async function run(args: readonly string[], screen?: Screen) {
  const printed: string[] = []
  const print = (line: string) => void printed.push(line)
  const code = await cli(args, { log: print, error: print, screen })
  return { code, printed, words: printed.join('\n').replaceAll(/ {2,}/g, ' ').split('\n') }
}

/** A screen for commands that must not take it. */
const taken = () => {
  throw new Error('It took the screen.')
}
const noScreen: Screen = { size: taken, open: taken, draw: taken, close: taken }

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

afterEach(() => void vi.useRealTimers())

/** The lines below the head, which has the time. */
const TITLES = [' used left limit full in denied a second']
/** Three denials in a time between one and two minutes. */
const REQUESTS = expect.stringMatching(/^requests 3 0\.0\d+$/)

describe('drizzle-ratelimit top', () => {
  test('shows the keys that use most and are denied most, and the limits by trouble', async () => {
    const shown = ['--prefix', 'exports', '--prefix', 'requests']
    const { code, words } = await run(['top', database.url, ...LIMITS, ...shown])
    expect(code).toBe(0)
    const [first, second, ...lines] = words
    expect(first).toMatch(/^\d\d:\d\d:\d\d \S+ \w+ on 127\.0\.0\.1$/)
    expect(second).toMatch(/^3 denied since \d\d:00, 0\.0\d+ a second now$/)
    expect(lines).toEqual([
      ...TITLES,
      REQUESTS,
      ' user:1 5 0 5 60 min 2',
      ' user:2 5 0 5 60 min 1',
      ' �[31mred 1 4 5 60 min',
      ` ${'😀'.repeat(22)}… 1 4 5 60 min`,
      'exports 0 0',
      ' paid:1 120 380 500 60 min',
      ' free:1 1 4 5 60 min',
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
    expect(words.slice(2)).toEqual([
      ...TITLES,
      'logins 0 0',
      ' eve 5 0 5 blocked 24 h',
      ' ada 5 0 5 blocked 60 min',
      ' bob 1 4 5 15 min',
    ])
  })

  test('shows some of the prefixes, and as many keys as asked', async () => {
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'requests', '--top', '1'])
    expect(words.slice(3)).toEqual([REQUESTS, ' user:1 5 0 5 60 min 2'])
  })

  test('takes a limit with plans as the page for operators does', async () => {
    const { db } = database
    const planned = new Ratelimit({
      db,
      limiter: Ratelimit.fixedWindow(9, '1h'),
      prefix: 'planned',
      durable: true,
    })
    await planned.limit('ada', { rate: 3 })
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'planned'])
    expect(words.slice(3)).toEqual(['planned 0 0', ' ada 3 2 5 60 min'])
  })

  test('shows denials only of an unlimited plan, which has no rows', async () => {
    const { code, words } = await run(['top', database.url, ...LIMITS, '--prefix', 'plans'])
    expect([code, ...words.slice(3)]).toEqual([0, 'plans 0 0', ' nothing'])
  })

  test('shows denials only, without a module', async () => {
    const { words } = await run(['top', database.url, '--prefix', 'exports', '--prefix', 'requests'])
    expect(words.slice(3)).toEqual([REQUESTS, ' user:1 2', ' user:2 1', 'exports 0 0', ' nothing'])
  })

  test('writes JSON for scripts', async () => {
    const shown = ['--prefix', 'requests', '--top', '1', '--json']
    const { printed } = await run(['top', database.url, ...LIMITS, ...shown], noScreen)
    const number = expect.any(Number)
    const key = { key: 'user:1', denials: 2, used: 5, remaining: 0, limit: 5, reset: number, isOther: false }
    expect(JSON.parse(printed.join('\n'))).toEqual({
      database: expect.stringMatching(/ on 127\.0\.0\.1$/),
      at: number,
      since: number,
      limits: [{ prefix: 'requests', denials: 3, pace: number, keys: [{ ...key, blockedUntil: null }] }],
    })
  })

  test('writes the keys to JSON as they are, also those of a family', async () => {
    const key = '👩\u200d👩\u200d👧'
    const common = { db: database.db, prefix: 'families', limiter: Ratelimit.fixedWindow(0, '1h') }
    const families = new Ratelimit({ ...common, use: [countDenials()] })
    await families.limit(key)
    await families.close()
    const { printed } = await run(['top', database.url, '--prefix', 'families', '--json'])
    expect(JSON.parse(printed.join('\n')).limits[0].keys).toMatchObject([{ key, denials: 1 }])
  })

  test('shows it again and again on a screen, which it gives back when the user stops', async () => {
    const shown: string[][] = []
    let listener: ScreenListener | undefined
    let isOpen = false
    const screen: Screen = {
      size: () => ({ columns: 80, rows: 24 }),
      open: (given) => {
        listener = given
        isOpen = true
      },
      draw: (lines) => {
        shown.push(lines.map(({ text }) => text))
        if (shown.length === 4) listener?.pressed({ text: '/', name: '/' })
        if (shown.length === 6) listener?.ended()
      },
      close: () => {
        isOpen = false
      },
    }
    const { code, printed } = await run(['top', database.url, ...LIMITS, '--every', '1ms'], screen)
    expect({ code, printed, isOpen, times: shown.length }).toEqual({
      ...{ code: 0, printed: [], isOpen: false },
      times: 6,
    })
    expect(shown[0]?.[0]).toBe('Reading …')
    expect(shown[1]?.[1]).toMatch(/^3 denied since \d\d:00, 0\.0\d+ a second now$/)
    expect(shown[4]?.at(-1)).toBe('/▏   ')
    expect((await run(['top', database.url, ...LIMITS, '--once'], noScreen)).printed).toHaveLength(1)
  })

  test('goes by the time of the database, and not by that of its own machine', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * 3_600_000 })
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'requests', '--top', '1'])
    expect(words.slice(3)).toEqual([REQUESTS, ' user:1 5 0 5 60 min 2'])
  })

  test('waits for a month, if it is told to', async () => {
    const warned = vi.fn()
    process.on('warning', warned)
    onTestFinished(() => void process.off('warning', warned))
    let [draws, stop] = [0, () => {}]
    const screen: Screen = {
      size: () => ({ columns: 80, rows: 24 }),
      open: ({ ended }) => {
        stop = ended
      },
      draw: () => void draws++,
      close: () => {},
    }
    const running = run(['top', database.url, '--prefix', 'requests', '--every', '31d'], screen)
    await expect.poll(() => draws).toBe(2)
    stop()
    expect((await running).code).toBe(0)
    // A longer timer than 2^31 ms would fire at once, with a warning.
    expect(warned).not.toHaveBeenCalled()
  })

  test('says that the database does not answer, and goes on when it does', async () => {
    const shown: string[] = []
    let stop = () => {}
    const screen: Screen = {
      size: () => ({ columns: 80, rows: 24 }),
      open: ({ ended }) => {
        stop = ended
      },
      draw: (lines) => void shown.push(lines[1]?.text ?? ''),
      close: () => {},
    }
    const url = `${database.url}?application_name=top`
    const running = run(['top', url, '--prefix', 'requests', '--every', '1ms'], screen)
    const last = () => shown.at(-1)
    const isRead = /^3 denied since/
    await expect.poll(last).toMatch(isRead)
    const breaks = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'top'`
    // Between two queries, nobody notices.
    await expect
      .poll(async () => {
        await database.rows(breaks)
        return shown.some((text) => text.startsWith('Not read since then: '))
      })
      .toBe(true)
    await expect.poll(last).toMatch(isRead)
    stop()
    expect(await running).toMatchObject({ code: 0, printed: [] })
  })

  test.each<[string, string[], string]>([
    ['no limits', [], 'Which limits?'],
    ['an unknown prefix', [...LIMITS, '--prefix', 'other'], 'no limit for other'],
    ['a module without limits', ['--limits', 'test/support/clock.ts'], 'export default { api }'],
    [
      'a limit that does not say its table',
      ['--limits', 'test/cli/commands/untabled.js'],
      '"requests" of --limits',
    ],
    ['no time', [...LIMITS, '--every', 'often'], '--every'],
    ['no number', [...LIMITS, '--top', 'many'], 'top must be a whole number'],
  ])('refuses %s', async (_, args, said) => {
    const { code, printed } = await run(['top', database.url, ...args])
    expect(code).toBe(2)
    expect(printed.join('\n')).toContain(said)
  })

  test('shows what the keys have used that are denied most, also if others use as much', async () => {
    const { db } = database
    const counting = { use: [countDenials({ every: '1h' })], limiter: Ratelimit.fixedWindow(500, '1h') }
    const calls = new Ratelimit({ db, prefix: 'calls', ...counting })
    for (const key of ['a', 'b', 'z']) await calls.limit(key, { rate: key === 'z' ? 400 : 500 })
    for (const rate of [101, 102, 103]) await calls.limit('z', { rate })
    await calls.close()
    const { words } = await run(['top', database.url, ...LIMITS, '--prefix', 'calls', '--top', '1'])
    expect(words.slice(3)).toEqual([expect.stringMatching(/^calls 3 /), ' z 400 100 500 60 min 3'])
  })
})
