import { sql } from 'drizzle-orm'
import { lockout } from 'drizzle-ratelimit/lockout'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { block } from '../../../src/lockout/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'
import { browse, limiterOf, newPrefix, rowsIn } from './browse.ts'

const database = useDatabase()

/** More than the page reads. */
const MANY = 20_000

/** Rows like that of a key, with other keys. */
async function copyRow(
  table: string,
  prefix: string,
  key: string,
  keys: string,
  count = MANY,
): Promise<void> {
  await database.db.execute(sql`
    insert into ${sql.identifier(table)} (prefix, key, count, prev_count, window_start, tokens, last_refill, expires_at)
    select prefix, replace(${keys}::text, '%', i::text), count, prev_count, window_start, tokens, last_refill, expires_at
    from ${sql.identifier(table)}, generate_series(1, ${count}::int) as i where prefix = ${prefix} and key = ${key}`)
}

test('a block is found among many keys that have failed and expire later, and counts say that they are cut', async () => {
  const limiter = lockout(2, '30d', { block: '1h', max: '2d' })
  const { ratelimit, prefix } = limiterOf(database.db, { limiter, use: undefined })
  await ratelimit.limit('failing')
  await block(ratelimit, 'blocked', '1h')
  await copyRow('rate_limit_ephemeral', prefix, 'failing', 'user:%')
  const { get, post } = browse({ logins: ratelimit })
  const { text } = await get('?limit=logins')
  expect(rowsIn(text, 'id="blocked"').map(([key]) => key)).toEqual(['blocked'])
  expect(text).toContain('0 or more of 20,000 or more keys that have used something have nothing left.')
  expect(text).toContain('Only the 20,000 keys whose rows end last were read.')
  expect((await get()).text).toContain('Blocked: 1')
  const found = async (key: string) =>
    (await get((await post('?limit=logins', { key, do: 'search' })).location)).text
  const many = await found('user:')
  expect(many).toContain('1,000 or more have used something. Only the 1,000 keys found first were read.')
  expect(many).toContain('1 to 50 of 1,000 or more')
  expect(await found('user:777')).not.toContain('or more')
  expect(await found('nobody')).toContain('A search looks through the first 200,000 keys.')
})

test('dated credits are searched before they are cut, and say that they are cut', async () => {
  const { db, statements } = watch(database.db)
  const credits = new Credits({ db, prefix: newPrefix(), dated: true })
  await credits.grant('org:1', 10, { id: 'gift', expires: '1d' })
  await credits.limit('org:1', { rate: 4 })
  await credits.grant('other', 10, { id: 'gift', expires: '30d' })
  await credits.grant('endless', 10, { id: 'gift' })
  await credits.limit('other', { rate: 5 })
  const gift = Buffer.from('gift').toString('hex')
  await copyRow('rate_limit_durable', credits.prefix, `other/grant/${gift}`, `other:%/grant/${gift}`)
  const { get, post } = browse({ credits })
  const { text } = await get('?limit=credits')
  expect(text).toContain('0 or more of 19,999 or more keys that have used something have nothing left.')
  expect(text).toContain('Only the 20,000 grants that end last were read.')
  const { location } = await post('?limit=credits', { key: 'org', do: 'search' })
  expect(rowsIn((await get(location)).text, 'id="keys"').map((row) => row.slice(0, 2))).toEqual([
    ['org:1', '40 % 4'],
  ])
  expect(rowsIn(text, 'id="grants"')[0]?.[0]).toBe('org:1')
  const ending = statements.find((each) => each.includes('"window_start"') && each.includes('< to_timestamp'))
  expect(ending).toMatch(/"expires_at" < to_timestamp/)
})
