import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { like } from 'drizzle-orm'
import { Members } from 'drizzle-ratelimit/members'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { db, events } from '../../support/docs-app.ts'

// The examples of docs/members.md, run as they stand there.

let folder: string
beforeAll(async () => {
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/members-'))
  await writeFile(join(folder, 'app.ts'), `export * from '${resolve('test/support/docs-app.ts')}'`)
  const blocks = (await readFile('docs/members.md', 'utf8')).matchAll(/^```ts\n([\s\S]*?)^```/gm)
  for (const [place, [, code = '']] of [...blocks].entries())
    await writeFile(join(folder, `block${place}.ts`), code)
})
afterAll(() => rm(folder, { recursive: true }))

test('devices of an account', async () => {
  const { signIn } = await import(join(folder, 'block0.ts'))
  for (const left of [4, 3, 2, 1, 0])
    expect(await signIn('ada', `device ${left}`)).toBe(`a new device: ${left} more may come`)
  expect(await signIn('ada', 'device 3')).toBe('welcome back')
  expect(await signIn('ada', 'another')).toBe('five devices are in use: remove one, or wait 30 days')
})

test('seats of a team are taken with the rows of its users, by many at once, by retries, and not by rollbacks', async () => {
  type Recipe = Record<'join' | 'leave', (team: string, user: string, limit: number) => Promise<boolean>>
  const { join: joinTeam, leave }: Recipe = await import(join(folder, 'block1.ts'))
  const users = ['ada', 'bob', 'cyd', 'dan', 'eve']
  const joined = await Promise.all([...users, ...users].map((user) => joinTeam('team', user, 3)))
  const rows = await db.select().from(events).where(like(events.id, 'team %'))
  const members = (await new Members({ db, prefix: 'seats', limit: 3 }).list('team')).map(
    ({ member }) => `team ${member}`,
  )
  expect(rows.map(({ id }) => id).toSorted()).toEqual(members.toSorted())
  expect(members).toHaveLength(3)
  // Each of the three has joined twice.
  expect(joined.filter(Boolean)).toHaveLength(6)
  const [first = ''] = members
  expect(await leave('team', first.slice(5), 3)).toBe(true)
  const other = users.find((user) => !members.includes(`team ${user}`)) as string
  expect(await joinTeam('team', other, 3)).toBe(true)
  // A smaller plan keeps who has a seat.
  expect(await joinTeam('team', other, 1)).toBe(true)
  expect(await joinTeam('team', first.slice(5), 1)).toBe(false)
  expect(await joinTeam('team', first.slice(5), 4)).toBe(true)
})
