import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { sql } from 'drizzle-orm'
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { cli } from '../../../src/cli/cli.ts'
import { connect } from '../../../src/cli/connect.ts'
import { jsonOf, optionOf, redact } from '../../../src/cli/output.ts'
import { citusMigration, storageMigration } from '../../../src/cli/storage.ts'
import { SHIPPED } from '../../../src/kernel/database/table-name.ts'

// What the command says without a project and without a database. test/distribution/packed has the rest.

interface Ended {
  readonly code: number
  readonly log: string
  readonly error: string
}

async function run(...args: string[]): Promise<Ended> {
  const lines = { log: [] as string[], error: [] as string[] }
  const code = await cli(args, {
    log: (line: string) => void lines.log.push(line),
    error: (line: string) => void lines.error.push(line),
  })
  return { code, log: lines.log.join('\n'), error: lines.error.join('\n') }
}

beforeEach(() => void vi.stubEnv('DATABASE_URL', ''))
afterEach(() => void vi.unstubAllEnvs())

test('storage --citus also distributes both tables, the second one with the first', () => {
  expect(citusMigration(SHIPPED).match(/SELECT .*(?=;)/g)).toEqual([
    expect.stringContaining(`create_distributed_table('"rate_limit_ephemeral"', 'key')`),
    expect.stringContaining(`'"rate_limit_durable"', 'key', colocate_with => '"rate_limit_ephemeral"'`),
  ])
})

test('drizzle/0001_storage.sql is what `drizzle-ratelimit storage` writes', async () => {
  await expect(storageMigration(SHIPPED)).toMatchFileSnapshot('../../../drizzle/0001_storage.sql')
})

test('with --logged the ephemeral table is logged, and the rest is the same', async () => {
  const statements = (text: string) => text.split('\n').filter((line) => line.startsWith('ALTER'))
  const [persistence, ...rest] = statements(storageMigration(SHIPPED))
  const [logged, ...others] = statements(storageMigration(SHIPPED, { logged: true }))
  expect(persistence).toContain('"rate_limit_ephemeral" SET UNLOGGED;')
  expect(logged).toBe(persistence?.replace('UNLOGGED', 'LOGGED'))
  expect(others).toEqual(rest)
  expect(storageMigration(SHIPPED, { logged: true })).not.toContain('UNLOGGED')
})

test.each([['--help'], ['-h'], ['storage', '--help'], ['check', '-h'], ['top', '-h']])(
  '%s %s: help',
  async (...args) => {
    const { code, log } = await run(...args)
    expect(code).toBe(0)
    for (const said of ['init ', 'storage ', 'check ', 'top ', '--schema', 'Exit code'])
      expect(log).toContain(said)
  },
)

test('--version', async () => {
  expect(await run('--version')).toEqual({ code: 0, log: '0.2.0', error: '' })
})

test.each<[string, string[], string]>([
  ['no command', [], 'Usage:'],
  ['another command', ['secret'], 'There is no such command'],
  ['another option', ['check', '--url=secret'], "Unknown option '--url'"],
  ['an option without a value', ['check', '--schema'], '--schema'],
  ['no URL', ['check'], 'DATABASE_URL'],
  ['no URL of top', ['top', '--prefix', 'p'], 'DATABASE_URL'],
  ['two URLs', ['check', 'a://b', 'c://d'], 'one URL'],
  ['no URL at all', ['check', 'secret'], 'is not a URL'],
  ['a URL with a slash in its password', ['check', 'postgres://u:secret/1@127.0.0.1/x'], 'write / as %2F'],
  ['a password that looks like a port', ['check', 'postgres://u:1/secret@127.0.0.1/x'], 'write / as %2F'],
  ['the same with a hash', ['check', 'postgres://u:1#secret@127.0.0.1/x'], '# as %23'],
  ['the same with a question mark', ['check', 'postgres://u:1?secret@127.0.0.1/x'], '? as %3F'],
  ['no socket', ['check', 'postgres://u:secret@/x?host=/nowhere'], 'ENOENT'],
  ['no server', ['check', 'postgres://u:secret@127.0.0.1:1/x'], 'ECONNREFUSED'],
  ['equal names', ['storage', '--ephemeral', 'a', '--durable', 'a'], 'two different names'],
  ['no such configuration', ['storage', '--config', 'none.ts'], 'There is no none.ts'],
])('the command ends with 2: %s', async (_, args, said) => {
  const { code, log, error } = await run(...args)
  expect({ code, log }).toEqual({ code: 2, log: '' })
  expect(error).toContain(said)
  expect(error).not.toContain('secret')
})

const AUTHENTICATION_OK = [...Buffer.from('R'), 0, 0, 0, 8, 0, 0, 0, 0]
const READY_FOR_QUERY = [...Buffer.from('Z'), 0, 0, 0, 5, ...Buffer.from('I')]
const LOGGED_IN = Buffer.from([...AUTHENTICATION_OK, ...READY_FOR_QUERY])

/** A server that logs everybody in, and then does this with the first query. */
function serverThat(meets: (socket: Socket) => void): Promise<string> {
  return served((socket) => {
    socket.once('data', () => {
      socket.write(LOGGED_IN)
      socket.once('data', () => meets(socket))
    })
  })
}

/** The address of a server whose connections begin with this. */
async function served(begins: (socket: Socket) => void): Promise<string> {
  const server = createServer(begins)
  onTestFinished(() => void server.close())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  return `postgres://u@127.0.0.1:${port}/x`
}

/** The server's answer to a query that fails. */
function refusal(message: string): Buffer {
  const fields = Buffer.from(`SERROR\0C42501\0M${message}\0\0`)
  const length = Buffer.alloc(4)
  length.writeInt32BE(fields.length + 4)
  return Buffer.concat([Buffer.from('E'), length, fields])
}

test('a connection that breaks ends with 2', async () => {
  const url = await serverThat((socket) => socket.destroy())
  expect(await run('check', url)).toMatchObject({ code: 2, log: '' })
})

test('a connection that is made after its end is closed', async () => {
  const sockets: Socket[] = []
  const { db, end } = connect(await served((each) => void each.once('data', () => sockets.push(each))))
  const asked = db.execute(sql`select 1`)
  const socket = await vi.waitFor(() => sockets[0] ?? Promise.reject(new Error('nobody has come')))
  await end()
  const closed = once(socket, 'close')
  socket.write(LOGGED_IN)
  await expect(asked).rejects.toThrow()
  await closed
})

test('a server that is silent ends with 2 after 30 seconds', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  const asked = vi.fn()
  const ended = vi.fn()
  const running = run('check', await serverThat(asked)).then((end) => ended(end))
  while (asked.mock.calls.length === 0) await new Promise(setImmediate)
  vi.advanceTimersByTime(29_999)
  await new Promise(setImmediate)
  expect(ended).not.toHaveBeenCalled()
  vi.advanceTimersByTime(1)
  await running
  const error = expect.stringContaining('has not answered for 30 seconds')
  expect(ended).toHaveBeenCalledWith({ code: 2, log: '', error })
})

test.each([
  ['limits', '--schema limits'],
  ['my limits', "--schema 'my limits'"],
  ['x; rm -rf ~', "--schema 'x; rm -rf ~'"],
  ['$(reboot)', "--schema '$(reboot)'"],
  ["it's", `--schema 'it'\\''s'`],
  ['-h', "--schema='-h'"],
  ['a\u001b[2Jb\nc', "--schema 'a\ufffd[2Jb\ufffdc'"],
])('a suggested command quotes names: %j', (name, option) => {
  expect(optionOf('schema', name)).toBe(option)
})

test("the server's answers cannot move the cursor", async () => {
  const url = await serverThat((socket) =>
    socket.write(refusal('\u001b]0;title\u0007\u001b[2Jgone\u202e\u009b1m')),
  )
  const { code, error } = await run('check', url)
  expect(code).toBe(2)
  expect(error).toContain('\ufffd]0;title\ufffd\ufffd[2Jgone\ufffd\ufffd1m')
  expect(error).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u)
})

test.each([
  ['at postgres://u:p@ss@h:5/d now', 'at postgres://u:***@h:5/d now'],
  ["'postgres://u:p w@h/d' is one", "'postgres://u:***@h/d' is one"],
  ['postgres://h/d?user=u&password=p&x=1', 'postgres://h/d?user=u&password=***&x=1'],
  ['postgres://u@h:5432/d, 12:30@home', 'postgres://u@h:5432/d, 12:30@home'],
])('passwords are not printed: %s', (text, printed) => {
  expect(redact(text)).toBe(printed)
})

test('JSON has the names as they are, and nothing that a terminal acts on', () => {
  const key = 'a\u009b2Jb\u202e👩\u200d💻\u{e0041}'
  const text = jsonOf({ key })
  expect(JSON.parse(text)).toEqual({ key })
  expect(text).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u)
})
