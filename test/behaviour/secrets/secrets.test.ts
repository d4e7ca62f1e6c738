import { denied, usage } from 'drizzle-ratelimit/reports'
import { expect, test } from 'vitest'
import { Credits } from '../../../src/credits/index.ts'
import { checkTables, type Database, limitAll, Ratelimit, RatelimitError } from '../../../src/index.ts'
import { closePeriods, Quota, reserveAll, spend } from '../../../src/quota/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { watch } from '../../support/watch.ts'

const database = useDatabase()
const SECRET = 'alice@example.com'
const PASSWORD = 'postgres://app:hunter2@db/app'
const limiter = Ratelimit.fixedWindow(5, '1h')

/** What a check can say of a failure. `toString` and the stack hold the message. */
function expectNoSecret(error: unknown): void {
  expect(error).toBeInstanceOf(RatelimitError)
  const { message, stack = '', code } = error as RatelimitError
  for (const secret of [SECRET, 'hunter2', '4242']) {
    expect([code, message]).not.toContainEqual(expect.stringContaining(secret))
    expect(stack).not.toContain(secret)
  }
}

const hidden = { prefix: SECRET, cleanupProbability: 0 }

function balanceOn(db: Database): Credits {
  return new Credits({ db, prefix: SECRET, cleanupProbability: 0 })
}

/** Every call that asks the database. */
const calls: readonly (readonly [string, (ratelimit: Quota, db: Database) => Promise<unknown>])[] = [
  ['limit', (ratelimit) => ratelimit.limit(SECRET, { rate: 4242 })],
  [
    'limit, many keys',
    (ratelimit) => Promise.all(['', ' 2'].map((end) => ratelimit.limit(SECRET + end, { rate: 4242 }))),
  ],
  ['limit, a refund', (ratelimit) => ratelimit.limit(SECRET, { rate: -4242 })],
  ['limit, joined', (ratelimit, db) => ratelimit.limit(SECRET, { tx: { ...db, rollback: undefined } })],
  ['reserve', (ratelimit) => ratelimit.reserve(SECRET, { rate: 4242 })],
  [
    'reserve with a name',
    (ratelimit) => ratelimit.reserve(SECRET, { rate: 4242, id: SECRET, expires: 4242 }),
  ],
  ['settle', (ratelimit) => ratelimit.settle({ key: SECRET, id: SECRET }, 4242)],
  ['getRemaining', (ratelimit) => ratelimit.getRemaining(SECRET)],
  ['getRemainingAll', (ratelimit) => ratelimit.getRemainingAll([SECRET, `${SECRET} 2`])],
  ['grant', (_, db) => balanceOn(db).grant(SECRET, 4242)],
  ['blockUntilReady', (ratelimit) => ratelimit.blockUntilReady(SECRET, 4242)],
  ['resetUsedTokens', (ratelimit) => ratelimit.resetUsedTokens(SECRET)],
  ['cleanup', (ratelimit) => ratelimit.cleanup()],
  ['limitAll', (ratelimit) => limitAll([{ ratelimit, key: SECRET, rate: 4242 }])],
  [
    'limitAll, joined',
    (ratelimit, db) => limitAll([{ ratelimit, key: SECRET }], { tx: { ...db, rollback: undefined } }),
  ],
  ['reserveAll', (ratelimit) => reserveAll([{ ratelimit, key: SECRET, rate: 4242 }])],
  ['spend', (ratelimit) => spend([{ ratelimit, key: SECRET }], { rate: 4242 })],
  ['denied', (_, db) => denied({ db, prefix: SECRET, durable: true }, { top: 4242 })],
  ['usage', (_, db) => usage({ db, prefix: SECRET, limiter, durable: true }, { top: 4242 })],
  [
    'closePeriods',
    (_, db) => {
      const tx = { ...db, rollback: undefined }
      return closePeriods({ db, prefix: SECRET, limiter, durable: true }, { tx, limit: 4242 })
    },
  ],
  ['checkTables', (_, db) => checkTables(db)],
]

const codes = [
  ...[
    '42P01',
    '40001',
    '40P01',
    '25P02',
    '53300',
    '57P01',
    '08006',
    '08P01',
    '22021',
    '55P03',
    '57014',
    '42501',
  ],
  ...['ECONNREFUSED', 'ECONNRESET', 'CONNECTION_CLOSED', undefined],
]

/** An error as Drizzle 0.45 wraps a driver's, whose own message holds parameters too. */
function fromDriver(code: string | undefined): Error {
  const cause = Object.assign(new Error(`${PASSWORD}: ${SECRET}, 4242`), code ? { code } : {})
  return new Error(`Failed query\nparams: ${SECRET},4242`, { cause })
}

/** All at the same time, because a retry waits a little. */
async function forEachCode(check: (code: string | undefined) => Promise<void>): Promise<void> {
  await Promise.all(codes.map(check))
}

const NO_SECRET = '%s: no error of the database tells a key, a number or the connection'

test.concurrent.each(calls)(NO_SECRET, async (_, call) => {
  await forEachCode(async (code) => {
    const { db } = watch(database.db, () => Promise.reject(fromDriver(code)))
    const ratelimit = new Quota({ db, limiter, ...hidden, durable: false })
    const error = await call(ratelimit, db).catch((reason: unknown) => reason)
    expectNoSecret(error)
    // It was not refused before it reached the database.
    expect((error as RatelimitError).code).not.toMatch(/^INVALID/)
  })
})

test('no error of invalid input has the secret in it', async () => {
  const ratelimit = new Quota({ db: database.db, limiter, prefix: 'secrets', durable: false })
  const bad = SECRET.repeat(100)
  const refusals = [
    () => ratelimit.limit(bad),
    () => ratelimit.limit(`${SECRET}\0`),
    () => ratelimit.limit(`${SECRET}\ud800`),
    () => ratelimit.limit(SECRET, { rate: 4242.5 }),
    () => ratelimit.reserve(SECRET, { rate: -4242 }),
    () => ratelimit.settle({ key: bad, id: SECRET }, 4242),
    () => ratelimit.settle({ key: SECRET, id: bad }, 4242),
    () => ratelimit.settle({ key: SECRET, id: SECRET }, -4242),
    async () => new Ratelimit({ db: database.db, limiter, prefix: 'secrets', hashKeys: 'hunter2' }),
    () => ratelimit.limit(SECRET, { tx: database.db }),
    () => ratelimit.blockUntilReady(SECRET, -4242),
    () => ratelimit.getRemaining(bad),
    () => ratelimit.resetUsedTokens(bad),
    () => limitAll([{ ratelimit, key: bad }]),
    () =>
      limitAll([
        { ratelimit, key: SECRET },
        { ratelimit, key: SECRET, limiter: Ratelimit.fixedWindow(4242, '1h') },
      ]),
    async () => new Ratelimit({ db: database.db, limiter, prefix: bad }),
  ]
  for (const refused of refusals) expectNoSecret(await refused().catch((error: unknown) => error))
})

test('no error of Postgres has the secret in it', async () => {
  await database.script(`
    create function refuse() returns trigger language plpgsql as $$ begin
      raise exception 'refused %', new.key using errcode = '22P02'; end $$;
    create trigger refused before insert on rate_limit_ephemeral for each row execute function refuse();`)
  const ratelimit = new Ratelimit({ db: database.db, limiter, prefix: 'said', cleanupProbability: 0 })
  const said = [
    () => ratelimit.limit(SECRET),
    () => limitAll([{ ratelimit, key: SECRET }]),
    () => database.db.transaction((tx) => ratelimit.limit(SECRET, { tx })),
  ]
  for (const call of said) expectNoSecret(await call().catch((error: unknown) => error))
})
