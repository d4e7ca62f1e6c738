import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Ratelimit } from 'drizzle-ratelimit'
import { expect, test } from 'vitest'
import { db } from '../../support/docs-app.ts'
import { undone } from '../../support/undone.ts'

test('the layer of docs/layers.md logs denials to a table of the application, as it stands there', async () => {
  const [, block = ''] = (await readFile('docs/layers.md', 'utf8')).match(/^```ts\n([\s\S]*?)^```/m) ?? []
  await mkdir('node_modules/.cache', { recursive: true })
  const folder = await mkdtemp(resolve('node_modules/.cache/layers-'))
  try {
    await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
    await writeFile(join(folder, 'layer.ts'), block)
    const { logins }: { readonly logins: Ratelimit } = await import(join(folder, 'layer.ts'))
    await db.$client.exec(
      'create table denial_log (at timestamptz not null default now(), prefix text not null, key text not null, rate float8 not null)',
    )
    for (let i = 0; i < 7; i++) await logins.limit('ada')
    await logins.limit('eve', { rate: 6 })
    await undone(db, async (tx) => {
      await logins.limit('ada', { tx })
    })
    await logins.close()
    const { rows } = await db.$client.query('select prefix, key, rate from denial_log order by key, rate')
    const ada = { prefix: 'logins', key: 'ada', rate: 1 }
    expect(rows).toEqual([ada, ada, ada, { ...ada, key: 'eve', rate: 6 }])
  } finally {
    await rm(folder, { recursive: true })
  }
})
