import { randomUUID } from 'node:crypto'
import { sql } from 'drizzle-orm'
import { getTableConfig, pgPolicy, pgRole } from 'drizzle-orm/pg-core'
import { describe, expect, test } from 'vitest'
import { checkTables, rateLimitTables, storageSql, tableSql } from '../../../src/index.ts'
import { useDatabase } from '../../support/databases.ts'
import { undone } from '../../support/undone.ts'

const database = useDatabase()
const TABLES = ['rate_limit_ephemeral', 'rate_limit_durable'] as const

// Roles belong to the whole server, where other tests run too.
const id = randomUUID().replaceAll('-', '')
const [anon, authenticated, app, group] = ['anon', 'authenticated', 'app', 'group'].map(
  (role) => `${role}_${id}`,
) as [string, string, string, string]

/** What is found after the changes, which are then undone. */
async function found(...changes: readonly string[]): Promise<string[]> {
  let messages: string[] = []
  await undone(database.db, async (tx) => {
    for (const role of [anon, authenticated, app, group]) {
      await tx.execute(sql.raw(`create role ${role}`))
      await tx.execute(sql.raw(`grant usage on schema public to ${role}`))
    }
    for (const change of changes) await tx.execute(sql.raw(change))
    messages = (await checkTables(tx)).map(({ message, sql }) => message + (sql ? ` SQL: ${sql}` : ''))
  })
  return messages
}

/** What is said of each table that these roles may change. */
function changedBy(...roles: readonly string[]): unknown[] {
  return TABLES.map((table) =>
    expect.stringMatching(
      new RegExp(`^${table} can be changed by ${roles.join(', ')}: .* docs/privileges\\.md says\\.$`),
    ),
  )
}

const made = [
  ...TABLES.map((table) => `drop table ${table}`),
  `alter default privileges in schema public grant all on tables to ${anon}, ${authenticated}`,
  ...tableSql(),
  ...storageSql(),
]

test('roles of an API that may change rows, by default privileges, are reported', async () => {
  expect(await found(...made)).toEqual(changedBy(anon, authenticated))
})

test.each(['insert', 'update', 'delete', 'truncate', 'insert (key)', 'update (tokens)'])(
  'one privilege is enough: %s',
  async (privilege) => {
    expect(await found(`grant ${privilege} on ${TABLES.join()} to ${anon}`)).toEqual(changedBy(anon))
    expect(await found(`grant ${privilege} on ${TABLES.join()} to public`)).toEqual(changedBy('PUBLIC'))
  },
)

test('a role that may only read is not reported', async () => {
  expect(await found(`grant select on ${TABLES.join()} to ${anon}, public`)).toEqual([])
})

test('a partition that a role may change is reported', async () => {
  const messages = await found(
    'alter table rate_limit_durable rename to old',
    'create table rate_limit_durable (like old including all) partition by hash (key)',
    'create table part partition of rate_limit_durable for values with (modulus 1, remainder 0)',
    `grant update on part to ${anon}`,
  )
  expect(messages.filter((each) => !each.includes(' SQL: '))).toEqual(changedBy(anon).slice(1))
})

test('row level security without a policy for the role is enough', async () => {
  const secured = TABLES.map((table) => `alter table ${table} enable row level security`)
  expect(await found(...made, ...secured)).toEqual([])
  const reads = TABLES.map((table) => `create policy reads on ${table} for select to ${anon} using (true)`)
  expect(await found(...made, ...secured, ...reads)).toEqual([])
  const writes = TABLES.map((table) => `create policy writes on ${table} to ${anon} using (true)`)
  expect(await found(...made, ...secured, ...writes)).toEqual(changedBy(anon))
})

test('members of the owner, and roles that no policy binds, are not reported', async () => {
  expect(
    await found(
      ...TABLES.map((table) => `alter table ${table} owner to ${group}`),
      `grant ${group} to ${app}`,
      `alter role ${anon} bypassrls`,
      `grant all on ${TABLES.join()} to ${app}, ${anon}`,
    ),
  ).toEqual([])
})

test('the role of the application and its groups are not reported to itself', async () => {
  const granted = [
    `grant ${group} to ${app}`,
    `grant all on ${TABLES.join()} to ${group}`,
    `grant select on ${TABLES.join()} to ${app}`,
  ]
  expect(await found(...granted)).toEqual(changedBy(group))
  expect(await found(...granted, `set local role ${app}`)).toEqual([])
})

test('policies that hide rows from the role are reported', async () => {
  const secured = TABLES.map((table) => `alter table ${table} enable row level security`)
  const granted = [`grant all on ${TABLES.join()} to ${app}`, ...secured]
  const restricted = (commands: string) =>
    TABLES.map((table) =>
      expect.stringMatching(
        `^${table} has row level security, and no policy lets this role ${commands} all rows, so that calls are refused`,
      ),
    )
  const hidden = restricted('SELECT, INSERT, UPDATE, DELETE')
  const policies = (policy: string) => TABLES.map((table) => `create policy p on ${table} ${policy}`)
  const asApp = `set local role ${app}`
  expect(await found(...granted, asApp)).toEqual(hidden)
  expect(await found(...granted, ...policies(`to ${app} using (prefix = 'p')`), asApp)).toEqual(hidden)
  expect(await found(...granted, ...policies(`to ${anon} using (true)`), asApp)).toEqual(hidden)
  expect(await found(...granted, ...policies(`to ${app} using (true)`), asApp)).toEqual([])
  expect(await found(...granted, ...policies('using (true)'), asApp)).toEqual([])
  const restricts = TABLES.map((table) => `create policy q on ${table} as restrictive using (prefix = 'p')`)
  expect(await found(...granted, ...policies(`to ${app} using (true)`), ...restricts, asApp)).toEqual(hidden)
  const only = (command: string, condition: string) =>
    TABLES.map((table) => `create policy "for ${command}" on ${table} for ${command} ${condition}`)
  const seen = [...granted, ...only('select', 'using (true)'), ...only('insert', 'with check (true)')]
  expect(await found(...seen, asApp)).toEqual(restricted('UPDATE, DELETE'))
  const halfOf = only('update', "using (true) with check (prefix = 'p')")
  expect(await found(...seen, ...halfOf, asApp)).toEqual(restricted('UPDATE, DELETE'))
  const rest = [...only('update', 'using (true)'), ...only('delete', 'using (true)')]
  expect(await found(...seen, ...rest, asApp)).toEqual([])
})

describe('tables that are declared with row level security', () => {
  const policies = [
    pgPolicy('all of it', { to: app, using: sql`true`, withCheck: sql`true` }),
    pgPolicy("no one's", {
      as: 'restrictive',
      for: 'select',
      to: [pgRole(anon), 'public'],
      using: sql`1 = ${1}`,
    }),
  ]
  const secured = rateLimitTables({ ephemeral: 'quick', durable: 'slow', rls: true, policies })

  test('have it and their policies from tableSql, which may run again, and checkTables finds what is missing', async () => {
    await undone(database.db, async (tx) => {
      const run = async (statements: readonly string[]) => {
        for (const statement of statements) await tx.execute(sql.raw(statement))
      }
      await run([app, anon].map((role) => `create role ${role}`))
      for (let times = 0; times < 2; times++) await run([...tableSql(secured), ...storageSql(secured)])
      expect(await checkTables(tx, secured)).toEqual([])
      await run(['alter table quick disable row level security', 'drop policy "all of it" on slow'])
      const differences = await checkTables(tx, secured)
      expect(differences.map(({ message }) => message)).toEqual([
        'quick should have row level security.',
        'slow has no policy all of it.',
      ])
      await run(differences.flatMap((each) => each.sql ?? []))
      expect(await checkTables(tx, secured)).toEqual([])
    })
  })

  test('what is not declared is not asked for', () => {
    expect(tableSql().join()).not.toMatch(/security|policy/i)
    for (const table of [rateLimitTables(), secured].flatMap(({ ephemeral, durable }) => [
      ephemeral,
      durable,
    ])) {
      const { enableRLS, policies: declared } = getTableConfig(table)
      const isSecured = table === secured.ephemeral || table === secured.durable
      expect([enableRLS, declared]).toEqual([isSecured, isSecured ? policies : []])
    }
  })

  test.each([
    { policies },
    { rls: 'yes' },
    { rls: true, policies: ['p'] },
    { rls: true, policies: { length: 1 } },
    { rls: true, policies: [null] },
  ])('%o is refused', (options) => {
    expect(() => rateLimitTables(options as never)).toThrow(
      expect.objectContaining({ code: 'INVALID_OPTION' }),
    )
  })
})
