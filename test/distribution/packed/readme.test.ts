import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, expect, inject, onTestFinished, test } from 'vitest'
import { emptyDatabase, type TestDatabase } from '../../support/databases.ts'
import { createProject, type Ended, type Project } from './project.ts'

// Slow: someone's project installs the tarball, and has the blocks of the README and no other file. Each is run
// as it stands there.

type Drizzle = '0.45' | '1.0'

let page: string
beforeAll(async () => {
  page = await readFile('README.md', 'utf8')
})

async function start(drizzle: Drizzle): Promise<{ database: TestDatabase; project: Project }> {
  const database = await emptyDatabase()
  onTestFinished(() => database.close())
  const files = { 'package.json': '{ "type": "module" }', ...Object.fromEntries(blocks('ts').map(named)) }
  return { database, project: await createProject(inject('installed')[drizzle], files, database.url) }
}

function blocks(language: 'ts' | 'sh'): string[] {
  return [...page.matchAll(/^```(\w+)\n(.*?)^```/gms)].flatMap(([, is, code = '']) =>
    is === language ? [code] : [],
  )
}

/** A block's first line has the name of its file, and may have the commands that run it. */
function named(code: string): [file: string, code: string] {
  const [, file] = /^\/\/ ([\w.]+\.m?[jt]s)\b/.exec(code) ?? []
  if (!file) throw new Error(`This block has no file name: ${code}`)
  return [file, code]
}

function blockOf(file: string): string {
  return blocks('ts').find((code) => named(code)[0] === file) ?? ''
}

/** What the block's comments say that it prints, line by line. */
function promised(file: string): string[] {
  return [...blockOf(file).matchAll(/^console\.log\(.*\) \/\/ (.*)$/gm)].flatMap(([, said = '']) =>
    said.split(', '),
  )
}

function expectPromised(file: string, { code, printed }: Ended): void {
  expect(promised(file).length).toBeGreaterThan(0)
  const said = printed.match(new RegExp(promised(file).join('|'), 'g')) ?? []
  expect({ file, code, said, printed }).toEqual({ file, code: 0, said: promised(file), printed })
}

test('the first block runs by itself, prints what its comments say and ends at once', async () => {
  const { project } = await start('0.45')
  expect(blockOf('try.mjs').split('\n').length).toBeLessThan(20)
  const ended = await project.node('try.mjs', { env: { NODE_OPTIONS: `--import=${TELLS_IDLE}` } })
  expectPromised('try.mjs', ended)
  expect(Number(/idle for (\d+) ms/.exec(ended.printed)?.[1])).toBeLessThan(5000)
})

/** A module that tells how long the process did nothing after its last words. */
const TELLS_IDLE = `data:text/javascript,${encodeURIComponent(`
  let at = 0
  const { log } = console
  console.log = (...words) => {
    log(...words)
    at = performance.now()
  }
  process.on('exit', () => log('idle for ' + Math.round(performance.now() - at) + ' ms'))`)}`

// init.test.ts has the other two pairs.
test.each([
  ['0.45', 'one with migrations'],
  ['1.0', 'a new project'],
] as const)(
  'Drizzle %s, %s: its commands make the tables that the other blocks then use',
  async (drizzle, kind) => {
    const { database, project } = await start(drizzle)
    if (kind === 'one with migrations') {
      for (const step of ['generate', 'migrate']) {
        expect(await project.run('drizzle-kit', step)).toMatchObject({ code: 0 })
      }
    }
    const made = commandsOf('sh').filter((command) => command.startsWith('npx '))
    expect(made).toContain('npx drizzle-ratelimit init')
    for (const command of made) {
      const [, name, ...args] = command.split(' ')
      const ended = await project.run(name as 'drizzle-kit', ...args)
      expect({ command, ...ended }).toEqual({ command, code: 0, printed: ended.printed })
    }
    const scripts = ['transaction.ts', 'quota.ts'].map(async (file) =>
      expectPromised(file, await project.node(file)),
    )
    await Promise.all([...scripts, expectLimited(project, 'route.ts')])
    expect(await database.rows('select * from jobs')).toHaveLength(1)
  },
)

/** Starts the server, and calls it until it denies. */
async function expectLimited(project: Project, file: string): Promise<void> {
  const port = await freePort()
  const stop = new AbortController()
  const served = project.node(file, { env: { PORT: String(port) }, signal: stop.signal })
  try {
    const ended = served.then(({ printed }) => printed)
    const statuses = await Promise.race([statusesOf(`http://127.0.0.1:${port}`), ended])
    expect(statuses).toEqual([...Array.from({ length: 20 }, () => 200), 429])
  } finally {
    stop.abort()
    await served
  }
}

async function statusesOf(url: string): Promise<number[]> {
  const statuses: number[] = []
  while (statuses.length < 21) {
    const response = await fetch(url).catch(() => undefined)
    // It has not started yet.
    if (response) statuses.push(response.status)
    else await sleep(50)
  }
  return statuses
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  return port
}

test('the blocks import each other, and what the README installs', () => {
  const files = blocks('ts').map((code) => `./${named(code)[0]}`)
  const installs = [...commandsOf('ts'), ...commandsOf('sh')].filter((command) =>
    /^npm install /.test(command),
  )
  const known = [...files, ...installs.flatMap((command) => command.split(' ').slice(2))]
  const imports = blocks('ts').flatMap((code) => [...code.matchAll(/ from '((?:@[^/]+\/|\.\/)?[^/']+)/g)])
  expect(imports.length).toBeGreaterThan(10)
  for (const [, from] of imports) expect(known).toContain(from)
})

test('the commands for this repository are scripts that it has', async () => {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8'))
  const said = blocks('sh').at(-1) ?? ''
  const names = [...said.matchAll(/ && npm (?:run )?(\w+)/g)].map(([, name = '']) => name)
  expect(names).toEqual(['quickstart', 'test'])
  for (const name of names) expect(scripts).toHaveProperty(name)
})

/** The commands of the blocks in this language, those in the first comments of TypeScript. */
function commandsOf(language: 'ts' | 'sh'): string[] {
  const lines = blocks(language).flatMap((code) =>
    language === 'sh' ? code.split('\n') : [(code.split('\n')[0] ?? '').replace(/^.*?: /, '')],
  )
  return lines.flatMap((line) => line.split(' && ').map((command) => command.trim()))
}
