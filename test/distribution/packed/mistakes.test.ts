import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, inject, test } from 'vitest'
import { runScript } from './kit.ts'

/** An application, and then a mistake on each line. */
const APPLICATION = `
import { drizzle as mysql } from 'drizzle-orm/mysql-proxy'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import { type Database, limitAll, Ratelimit } from 'drizzle-ratelimit'
import { rateLimit } from 'drizzle-ratelimit/express'

declare const db: NodePgDatabase
declare const tx: Database
declare const user: string | undefined
declare const keyOf: (() => string) | undefined
const limiter = Ratelimit.fixedWindow(5, '1m')
const api = new Ratelimit({ db, limiter, prefix: 'api' })
`

/** Mistakes, and what the error has to name. */
const MISTAKES: readonly (readonly [line: string, name: string])[] = [
  ["api.limit('k', { cost: 5 })", "'cost'"],
  ["new Ratelimit({ db, limiter, prefix: 'api', window: '1m' })", "'window'"],
  ["new Ratelimit({ db, limiter, prefix: 'api', timeout: '5w' })", '\'"5w"\''],
  ['api.limit(user)', "'undefined'"],
  ['rateLimit({ ratelimit: api, key: keyOf })', "'undefined'"],
  ['rateLimit({ ratelimit: api })', "'key'"],
  [
    "new Ratelimit({ db: mysql(async () => ({ rows: [] })), limiter, prefix: 'api' })",
    'needs a PostgreSQL database',
  ],
  ['new Ratelimit({ db, limiter })', "'prefix'"],
  ["new Ratelimit({ db, limiter: { tokens: 5, window: '1m' }, prefix: 'api' })", "'Limiter'"],
  ["limitAll([{ ratelimit: api, key: 'k' }], { wait: '5s', tx })", "'Database'"],
  ["new Ratelimit({ db, limiter, prefix: 'api', synchronousCommit: true })", "'durable'"],
  ["if (api.limit('k')) throw tx", '.LimitResult>'],
]

/** The oldest compiler, the last one before 7, and the newest. */
const COMPILERS = { 5.4: 'typescript-5.4', 5.9: 'typescript-5.9', 7: 'typescript' }

const OPTIONS = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'node16']

beforeAll(async () => {
  const lines = MISTAKES.map(([line]) => line)
  await writeFile(join(inject('consumer'), 'mistakes.mts'), [APPLICATION, ...lines].join('\n'))
})

describe.concurrent.each(Object.entries(COMPILERS))('TypeScript %s', (version, compiler) => {
  test('names what is wrong', async ({ expect }) => {
    const said = await runScript(`${compiler}/bin/tsc`, [...OPTIONS, '--pretty', 'false', 'mistakes.mts'])
    const errors = said.split(/^mistakes\.mts/m).slice(1)
    expect(errors).toHaveLength(MISTAKES.length)
    const texts = errors.map((error, place) => {
      const [line, name] = MISTAKES[place] as (typeof MISTAKES)[number]
      const [[, column] = [], text] = [error.match(/,(\d+)\)/) ?? [], textOf(error)]
      expect(text).toContain(name)
      return `${line}\n${' '.repeat(Number(column) - 1)}^\n${text}\n`
    })
    await expect(texts.join('\n')).toMatchFileSnapshot(`mistakes/${version}.txt`)
  })
})

/** The first and the last line of an error. Those between them name types on the way from one to the other. */
function textOf(error: string): string {
  const lines = error
    .replace(/^.*: error TS\d+: /, '')
    .replaceAll(/import\(".*?node_modules\//g, 'import("')
    .trim()
    .split('\n')
  return [...new Set([lines[0], lines.at(-1)])].map((line) => line?.trim()).join('\n')
}
