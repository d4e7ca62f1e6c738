import { spawn } from 'node:child_process'
import { cp, mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { WINGS } from '../test/support/wings.ts'
import { removeWing } from './remove-wing.ts'
import { sourcesWithout } from './sources-without.ts'

// `npm run without -- schedule` removes a wing from a copy of the repository, and says whether the types are
// right there and the tests of the rest pass: some, or with `--whole` all of `npm test`. `--sources` is
// quick: it looks at the types of src only, without the wing, or without each in turn if none is named.

const NOT_COPIED = ['node_modules', '.git', 'dist']

/** The modules, the sources, and the answers that every implementation must give. */
const FEW = ['--project', 'pglite 0.45', 'test/unit', 'test/behaviour/drivers/vectors.test.ts']

const COMPILER = ['node_modules/typescript/bin/tsc', '--noEmit']
const TESTS = ['node_modules/vitest/vitest.mjs', 'run', '--silent=true']

/** Documents link to examples that were removed, and describe calls. Who removes a wing mends the text. */
const TEXTS = ['links', 'reference'].flatMap((name) => [
  '--exclude',
  `test/distribution/documents/${name}.test.ts`,
])

const { values, positionals } = parseArgs({
  options: { sources: { type: 'boolean', default: false }, whole: { type: 'boolean', default: false } },
  allowPositionals: true,
})

async function isWhole(folder: string): Promise<boolean> {
  return (await succeeds(folder, COMPILER)) && succeeds(folder, [...TESTS, ...(values.whole ? TEXTS : FEW)])
}

function succeeds(folder: string, args: readonly string[]): Promise<boolean> {
  const child = spawn(process.execPath, args, { cwd: folder, stdio: 'inherit' })
  return new Promise((done) => child.on('close', (code) => done(code === 0)))
}

async function run(name: string | undefined): Promise<boolean> {
  const wing = WINGS.find((each) => each === name)
  const isOfEach = values.sources && name === undefined
  if (!wing && !isOfEach) throw new Error(`Which wing? It is one of ${WINGS.join(', ')}.`)
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-without-'))
  try {
    if (!wing || values.sources) {
      const needed = await sourcesWithout(folder, wing ? [wing] : WINGS)
      for (const each of needed) console.log(`The sources need ${each}.`)
      return needed.length === 0
    }
    await cp('.', folder, { recursive: true, filter: (path) => !NOT_COPIED.includes(basename(path)) })
    await symlink(resolve('node_modules'), join(folder, 'node_modules'))
    const { wings, entries, users } = await removeWing(folder, wing)
    console.log(`Without ${wings.join(', ')}: ${entries.join(', ') || 'no entry'}.`)
    console.log(`${users.length} other files use it:\n${users.map((each) => `  ${each}`).join('\n')}`)
    return await isWhole(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const isFine = await run(positionals[0])
console.log(isFine ? 'The rest is whole.' : 'The rest is broken.')
process.exitCode = isFine ? 0 : 1
