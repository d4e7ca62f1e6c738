import { expect, test } from 'vitest'
import { RatelimitError } from '../../src/index.ts'
import { Once } from '../../src/several/once.ts'

const fails = (error: unknown) => () => Promise.reject(error)

test.each<readonly [string, unknown]>([
  ['of another kind', new TypeError('undefined is not a function')],
  ['that leaves the outcome unknown', new RatelimitError('OUTCOME_UNKNOWN', 'It broke.')],
  ['of an answer that could not be read', new RatelimitError('DATABASE', 'No row.')],
])('after an error %s nothing is done again', async (_, error) => {
  const once = new Once()
  await expect(once.run(fails(error))).rejects.toBe(error)
  await expect(once.run(async () => 1)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})

test.each<readonly [string, unknown]>([
  ['of an input', new RatelimitError('INVALID_RATE', 'No number.')],
  ['that Postgres has sent', new RatelimitError('DATABASE', 'No.', { sqlState: '42501' })],
  ['of a database that is away', new RatelimitError('UNREACHABLE', 'Away.')],
])('after an error %s it may be done again', async (_, error) => {
  const once = new Once()
  await expect(once.run(fails(error))).rejects.toBe(error)
  expect(await once.run(async () => 1)).toBe(1)
  await expect(once.run(async () => 2)).rejects.toMatchObject({ code: 'ALREADY_SETTLED' })
})
