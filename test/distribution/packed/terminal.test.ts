import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { expect, inject, test } from 'vitest'
import { emptyDatabase, migrate } from '../../support/databases.ts'

/** The program of util-linux that runs a command in a terminal. */
const SCRIPT = '/usr/bin/script'

test.skipIf(!existsSync(SCRIPT))(
  'top is drawn again and again in a terminal, and Ctrl-C ends it',
  async () => {
    const database = await emptyDatabase()
    await migrate(database)
    await database.script(`insert into rate_limit_ephemeral (prefix, key, count, window_start, expires_at)
    values ('api [denied]', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24') || ' user:1', 7, now(),
      now() + interval '1 week')`)
    const command = `exec node node_modules/drizzle-ratelimit/dist/src/cli/main.js top --prefix api --every 50ms`
    const env = { ...process.env, DATABASE_URL: database.url }
    const terminal = spawn(SCRIPT, ['-qefc', command, '/dev/null'], { cwd: inject('consumer'), env })
    let shown = ''
    terminal.stdout.on('data', (text) => {
      const times = shown.split('user:1').length
      shown += text
      // The key Ctrl-C, once.
      if (times < 4 && shown.split('user:1').length >= 4) terminal.stdin.write('\u0003')
    })
    const [code] = await once(terminal, 'exit')
    await database.close()
    expect(shown).toMatch(/user:1 +7/)
    expect(shown.split('\u001b[1;1H\u001b[0J').length).toBeGreaterThanOrEqual(4)
    expect(code).toBe(0)
  },
)
