import { expect, test, vi } from 'vitest'
import { toRatelimitError } from '../../../src/database/database-error.ts'
import { retrying } from '../../../src/database/retry.ts'
import { RatelimitError } from '../../../src/errors.ts'

/** An error with a code, which so many others wrap. */
function wrapped(times: number): Error {
  const inner: Error = Object.assign(new Error('inner'), { code: '42P01' })
  return Array.from({ length: times }).reduce<Error>((cause) => new Error('outer', { cause }), inner)
}

test.each([0, 1, 2, 3, 4])('a code is found in an error that %d others wrap', (times) => {
  expect(toRatelimitError(wrapped(times))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
})

test('it is not searched for any deeper, because errors can wrap each other in a circle', () => {
  expect(toRatelimitError(wrapped(5))).toMatchObject({ code: 'OUTCOME_UNKNOWN', sqlState: undefined })
})

test('a database that is missing is called that', () => {
  const cause = Object.assign(new Error('database "app" does not exist'), { code: '3D000' })
  const message = expect.stringMatching(/^The server has no database of the name/)
  expect(toRatelimitError(cause)).toMatchObject({ code: 'DATABASE', sqlState: '3D000', message })
})

test('a table that is missing names all commands that make it', () => {
  const { message } = toRatelimitError(wrapped(0))
  for (const command of ['drizzle-kit generate', 'drizzle-ratelimit storage', 'drizzle-kit migrate']) {
    expect(message).toContain(`npx ${command}`)
  }
})

test.each(['text', undefined, null, 42])('what is thrown need not be an error: %s', (thrown) => {
  expect(toRatelimitError(thrown)).toMatchObject({ code: 'OUTCOME_UNKNOWN', sqlState: undefined })
})

test('work that fails for another reason than before is not tried again', async () => {
  const work = vi
    .fn()
    .mockRejectedValueOnce(new RatelimitError('DEADLOCK', 'first'))
    .mockRejectedValue(new RatelimitError('MISSING_TABLE', 'second'))
  await expect(retrying(work)).rejects.toMatchObject({ code: 'MISSING_TABLE' })
  expect(work).toHaveBeenCalledTimes(2)
})
