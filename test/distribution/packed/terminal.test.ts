import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { spawn } from '@lydell/node-pty'
import { Terminal } from '@xterm/headless'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { emptyDatabase, migrate, type TestDatabase } from '../../support/databases.ts'
import { PATIENTLY } from '../../support/patience.ts'

// The command as it is published, in a pseudo-terminal and with an emulator that says what a person sees.

const COMMAND = 'node_modules/drizzle-ratelimit/dist/src/cli/main.js'

/** With what Node cannot read by itself: an enum, and an import without an extension. */
const LIMITS = `import { Ratelimit } from 'drizzle-ratelimit'
import { Plan } from './plan-of-terminal'
export default { api: { limiter: Ratelimit.fixedWindow(Plan.Free, '1h'), durable: false } }
`

let database: TestDatabase
beforeAll(async () => {
  database = await emptyDatabase()
  await migrate(database)
  const limits = {
    'limits-of-terminal.ts': LIMITS,
    'plan-of-terminal.ts': 'export enum Plan { Free = 20 }\n',
  }
  for (const [file, text] of Object.entries(limits)) await writeFile(join(inject('consumer'), file), text)
  const insert = 'insert into rate_limit_ephemeral (prefix, key, count, window_start, expires_at)'
  const hour = `to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24')`
  await database.script(`
    ${insert} select 'api', 'user:' || n, n, now(), now() + interval '1 hour' from generate_series(1, 20) n;
    ${insert} values ('api [denied]', ${hour} || ' user:20', 7, now(), now() + interval '1 week'),
      ('api [denied]', ${hour} || ' ', 7, now(), now() + interval '1 week')`)
})
afterAll(() => database.close())

/** A shell with a word on its screen, in which `top` runs. */
function startTop(cols: number, rows: number, ...args: string[]) {
  const env = { ...process.env, DATABASE_URL: database.url, TERM: 'xterm-256color' }
  const command = `echo before; "${process.execPath}" ${COMMAND} top ${args.join(' ')}; echo "code $?"`
  const shell = spawn('sh', ['-c', command], { cols, rows, cwd: inject('consumer'), env })
  const terminal = new Terminal({ cols, rows, allowProposedApi: true })
  shell.onData((data) => terminal.write(data))
  const lines = () => {
    const { active } = terminal.buffer
    return Array.from({ length: terminal.rows }, (_, row) =>
      (active.getLine(row)?.translateToString(true, 0, terminal.cols) ?? '').trimEnd(),
    )
  }
  return {
    lines,
    screen: () => lines().join('\n'),
    type: (text: string) => shell.write(text),
    kind: () => terminal.buffer.active.type,
    hasScrolled: () => terminal.buffer.active.baseY > 0,
    resize: (columns: number) => {
      terminal.resize(columns, rows)
      shell.resize(columns, rows)
    },
  }
}

test.skipIf(process.platform === 'win32')('top in a terminal of 80 columns and 24 rows', async () => {
  const { lines, screen, type, kind, hasScrolled, resize } = startTop(
    80,
    24,
    '--limits limits-of-terminal.ts --top 30 --every 100ms',
  )
  await expect.poll(screen, PATIENTLY).toMatch(/user:20 +20 +0 +20 +60 min +7$/m)
  expect(kind()).toBe('alternate')
  expect(lines()[0]).toMatch(/^\d\d:\d\d:\d\d \S+ {2}every 100ms {2}\w+ on 127\.0\.0\.1$/)
  await expect.poll(screen, PATIENTLY).toContain('7 denied since')
  await expect.poll(screen, PATIENTLY).toContain('0 a second now')
  expect(lines().at(-1)).toMatch(/^q quit .* \/ search +20 of 21 lines$/)
  expect(screen()).not.toContain('user:1 ')

  type('\u001b[B')
  await expect.poll(screen, PATIENTLY).toContain('user:1 ')
  type('/user:1')
  await expect.poll(screen, PATIENTLY).not.toContain('user:20')
  type('\r')
  await expect.poll(() => lines().at(-1), PATIENTLY).toMatch(/^\/user:1 +q quit/)
  resize(40)
  await expect.poll(() => lines()[2], PATIENTLY).toMatch(/^ +left +full in +denied$/)
  expect(screen()).toMatch(/user:19 +1 +60 min$/m)
  expect(hasScrolled()).toBe(false)

  type('q')
  await expect.poll(screen, PATIENTLY).toContain('code 0')
  expect(kind()).toBe('normal')
  expect(lines().filter((line) => line !== '')).toEqual(['before', 'code 0'])
})

test.skipIf(process.platform === 'win32')('Ctrl-C ends top and leaves the terminal as it was', async () => {
  const { lines, screen, type, kind } = startTop(80, 24, '--prefix api')
  await expect.poll(screen, PATIENTLY).toMatch(/user:20 +7$/m)
  type('\u0003')
  await expect.poll(screen, PATIENTLY).toContain('code 0')
  expect(kind()).toBe('normal')
  expect(lines().filter((line) => line !== '')).toEqual(['before', 'code 0'])
})
