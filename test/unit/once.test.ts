import { expect, test } from 'vitest'
import { type Database, RatelimitError } from '../../src/index.ts'
import { Once } from '../../src/several/once.ts'

const alone = { db: {} as Database, isTransaction: false }
const fails = (error: unknown) => () => Promise.reject(error)

test.each<readonly [string, unknown]>([
  ['of another kind', new TypeError('undefined is not a function')],
  ['that leaves the outcome unknown', new RatelimitError('OUTCOME_UNKNOWN', 'It broke.')],
  ['of an answer that could not be read', new RatelimitError('DATABASE', 'No row.')],
])('after an error %s nothing is done again', async (_, error) => {
  const once = new Once(alone.db)
  await expect(once.run(alone, fails(error))).rejects.toBe(error)
  await expect(once.run(alone, async () => 1)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test.each<readonly [string, unknown]>([
  ['of an input', new RatelimitError('INVALID_RATE', 'No number.')],
  ['that Postgres has sent', new RatelimitError('DATABASE', 'No.', { sqlState: '42501' })],
  ['of a database that is away', new RatelimitError('UNREACHABLE', 'Away.')],
])('after an error %s it may be done again', async (_, error) => {
  const once = new Once(alone.db)
  await expect(once.run(alone, fails(error))).rejects.toBe(error)
  expect(await once.run(alone, async () => 1)).toBe(1)
  await expect(once.run(alone, async () => 2)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test('after an error that charged nothing, in a transaction or before one is known, it may be done again', async () => {
  const once = new Once(alone.db)
  const broken = new RatelimitError('OUTCOME_UNKNOWN', 'It broke.')
  const db = { execute: fails(broken) } as unknown as Database
  await expect(once.run({ db, isTransaction: true }, async () => 1)).rejects.toBe(broken)
  expect(await once.run(alone, async () => 2)).toBe(2)
})
