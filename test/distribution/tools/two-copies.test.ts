import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'

// What docs/errors.md says of a second copy of drizzle-orm.

const run = promisify(execFile)
const root = resolve('.')
let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/copies-'))
})
afterAll(() => rm(folder, { recursive: true }))

/** What the type checker says of an application. */
async function check(): Promise<string> {
  const app = `import { drizzle } from 'drizzle-orm/pg-proxy'
    import { Ratelimit } from '../../../src/index.ts'
    const db = drizzle(async () => ({ rows: [] }))
    new Ratelimit({ db, limiter: Ratelimit.unlimited(), prefix: 'api' })`
  await writeFile(join(folder, 'app.ts'), app)
  const compilerOptions = {
    ...{ preserveSymlinks: true, isolatedDeclarations: false, declaration: false },
    types: [join(root, 'node_modules/@types/node')],
  }
  const config = { extends: join(root, 'tsconfig.json'), compilerOptions, include: ['app.ts'] }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
  const { stdout } = await run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder]).catch(
    (error) => error,
  )
  return stdout
}

/** The same files, of another version: the type checker takes two copies of one version for one. */
async function copyOfDrizzle(): Promise<void> {
  const [from, to] = [root, folder].map((each) => join(each, 'node_modules/drizzle-orm')) as [string, string]
  await mkdir(to, { recursive: true })
  const files = (await readdir(from)).filter((file) => file !== 'package.json')
  await Promise.all(files.map((file) => symlink(join(from, file), join(to, file))))
  const own = JSON.parse(await readFile(join(from, 'package.json'), 'utf8'))
  await writeFile(join(to, 'package.json'), JSON.stringify({ ...own, version: '0.45.999' }))
}

test('a second copy is refused with the words of the page, and one copy is accepted', async () => {
  expect(await check()).toBe('')
  await copyOfDrizzle()
  const [said] = /Types have separate declarations of a private property '\w+'/.exec(await check()) ?? ['']
  expect(said).not.toBe('')
  expect(await readFile('docs/errors.md', 'utf8')).toContain(said)
})
