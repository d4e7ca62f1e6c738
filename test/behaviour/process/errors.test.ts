import { expect, test } from 'vitest'
import { type Database, Ratelimit, type RatelimitError } from '../../../src/index.ts'
import { errorOf } from '../../support/errors.ts'

/** The error of a call whose statements fail with these, one after the other. */
async function errorAfter(...thrown: readonly unknown[]): Promise<RatelimitError> {
  const failures = thrown.values()
  const db: Database = {
    execute: () => Promise.reject(failures.next().value),
    transaction: () => Promise.reject(new Error('no transaction')),
    refreshMaterializedView: undefined,
  }
  const limiter = Ratelimit.fixedWindow(5, '1h')
  return errorOf(() => new Ratelimit({ db, limiter, prefix: 'fails', coalesce: false }).limit('key'))
}

function withCode(code: string, message = 'inner'): Error {
  return Object.assign(new Error(message), { code })
}

/** An error with the code of a missing table, which as many others wrap. */
function wrapped(times: number): Error {
  return Array.from({ length: times }).reduce<Error>(
    (cause) => new Error('outer', { cause }),
    withCode('42P01'),
  )
}

test.each([0, 1, 2, 3, 4])('a code is found in an error that %d others wrap', async (times) => {
  expect(await errorAfter(wrapped(times))).toMatchObject({ code: 'MISSING_TABLE', sqlState: '42P01' })
})

test('a code is not searched for any deeper, because errors can wrap each other in a circle', async () => {
  expect(await errorAfter(wrapped(5))).toMatchObject({ code: 'OUTCOME_UNKNOWN', sqlState: undefined })
})

test.each([
  ['3D000', 'no database'],
  ['25006', 'read-only'],
  ['28000', 'does not let this user in'],
  ['28P01', 'password'],
  ['42501', 'USAGE on the schema'],
  ['42P10', 'primary key'],
  ['55P03', 'lock_timeout. If it is your own, give the call its tx.'],
  ['57014', 'statement_timeout'],
])('the error of SQLSTATE %s says what it means', async (sqlState, said) => {
  const error = await errorAfter(withCode(sqlState, 'secret'))
  expect(error).toMatchObject({ code: 'DATABASE', sqlState, message: expect.stringContaining(said) })
  expect(error.message).toMatch(/\. The call had no effect\.$/)
  expect(error.message).not.toContain('secret')
})

test('the error of a missing table names the commands that make it', async () => {
  const { message } = await errorAfter(wrapped(0))
  for (const command of ['drizzle-ratelimit init', 'drizzle-kit migrate', 'drizzle-ratelimit check']) {
    expect(message).toContain(`npx ${command}`)
  }
  for (const said of ['schemaFilter', 'tablesFilter', '`tables`']) expect(message).toContain(said)
})

test.each(['text', undefined, null, 42])(
  'a driver may throw a value that is not an error: %s',
  async (thrown) => {
    expect(await errorAfter(thrown)).toMatchObject({ code: 'OUTCOME_UNKNOWN', sqlState: undefined })
  },
)

test('a call that loses to another transaction and then fails for another reason throws the second error', async () => {
  const error = await errorAfter(withCode('40P01'), withCode('42P01'), withCode('XX000'))
  expect(error).toMatchObject({ code: 'MISSING_TABLE' })
})
