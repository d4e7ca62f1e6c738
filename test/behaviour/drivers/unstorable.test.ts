import { describe, expect, test } from 'vitest'
import { limitAll, Ratelimit } from '../../../src/index.ts'
import { emptyDatabase, hasServer, migrate, type TestDatabase, useDatabase } from '../../support/databases.ts'

const limiter = Ratelimit.fixedWindow(1000, '1h')

/** Of 50 keys at once those that cannot be stored fail, and each of the others is charged once. */
async function expectOnlyThoseFail(database: TestDatabase, unstorable: readonly string[]): Promise<void> {
  const ratelimit = new Ratelimit({
    ...{ db: database.db, limiter, prefix: 'unstorable' },
    ...{ cleanupProbability: 0, connections: 1 },
  })
  const keys = Array.from({ length: 50 }, (_, i) => `key ${i}`)
  for (const [i, key] of unstorable.entries()) keys.splice(i * 17, 0, key)
  for (const used of [1, 2]) {
    const answers = await Promise.allSettled(keys.map((key) => ratelimit.limit(key)))
    for (const [i, answer] of answers.entries()) {
      expect(answer).toMatchObject(
        unstorable.includes(keys[i] ?? '')
          ? { status: 'rejected', reason: { code: 'DATABASE', sqlState: expect.stringMatching(/^22/) } }
          : { status: 'fulfilled', value: { success: true, remaining: 1000 - used } },
      )
    }
  }
}

test.runIf(hasServer())('keys that the encoding of the database cannot store fail alone', async () => {
  const database = await emptyDatabase(`encoding 'LATIN1' locale 'C' template template0`)
  await migrate(database)
  await expectOnlyThoseFail(database, ['日本語', '👩', 'ß 日'])

  // The rest is found in halves, the second before the first. Rows are made in the order of the keys all the
  // same.
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'order', cleanupProbability: 0 })
  await Promise.allSettled(['a 日', ...'bcdefgh'].map((key) => ratelimit.limit(key)))
  const made = await database.rows(
    `select key from rate_limit_ephemeral where prefix = 'order' order by ctid`,
  )
  expect(made.map(({ key }) => key)).toEqual([...'bcdefgh'])
  await database.close()
})

test.runIf(hasServer())('lists of such keys fail alone, and the other lists are charged once', async () => {
  const database = await emptyDatabase(`encoding 'LATIN1' locale 'C' template template0`)
  await migrate(database)
  const limits = ['first', 'second'].map(
    (prefix) => new Ratelimit({ db: database.db, limiter, prefix, cleanupProbability: 0 }),
  )
  const keys = ['a', 'b', '日本語', 'c']
  for (const used of [1, 2]) {
    const all = keys.map((key) => limitAll(limits.map((ratelimit) => ({ ratelimit, key }))))
    const remaining = 1000 - used
    const charged = { status: 'fulfilled', value: { results: [{ remaining }, { remaining }] } }
    expect(await Promise.allSettled(all)).toMatchObject([
      ...[charged, charged],
      { status: 'rejected', reason: { code: 'DATABASE', sqlState: '22P05' } },
      charged,
    ])
  }
  await database.close()
})

describe('keys that a trigger refuses', () => {
  const database = useDatabase()

  test('fail alone', async () => {
    await database.script(`
      create function refuse() returns trigger language plpgsql as $$ begin
        if new.key like 'bad%' then raise exception 'refused' using errcode = '22P02'; end if; return new; end $$;
      create trigger refused before insert on rate_limit_ephemeral for each row execute function refuse();`)
    await expectOnlyThoseFail(database, ['bad 1', 'bad 2', 'bad 3'])
  })
})
