import { expect, test } from 'vitest'
import { paramsOf } from '../../src/database/rendered.ts'
import { Ratelimit, rateLimitDurable } from '../../src/index.ts'
import { bindOf } from '../../src/statements/input.ts'
import { check } from '../../src/statements/statements.ts'
import { useDatabase } from '../support/databases.ts'

const database = useDatabase()

const { algorithm, params } = Ratelimit.slidingWindow(5, '1m')
const call = { prefix: 'p', key: 'k', clock: null, rate: 1, calls: 1, force: 0, paidFrom: null, ...params }

/** The plan on a table of many rows, as lines. */
async function planOf(form: 'one' | 'many' | 'several'): Promise<string[]> {
  await database.script(`
    insert into rate_limit_durable (prefix, key, expires_at)
      select 'p', 'key ' || i, now() from generate_series(1, 20000) as i on conflict do nothing;
    analyze rate_limit_durable;`)
  const calls = [call, { ...call, key: 'l' }]
  const values = bindOf(form, form === 'one' ? [call] : calls)
  const statement = check(rateLimitDurable, algorithm, form, 'as the session')
  const rows = await database.rows(`explain ${statement.sql}`, paramsOf(statement, values))
  return rows.map((row) => String(row['QUERY PLAN']))
}

test('each link of the chain is worked out once, and not written into the next', async () => {
  const plan = (await planOf('one')).join('\n')
  for (const link of ['locked', 'dated', 'settled', 'offered', 'granted', 'decision']) {
    expect(plan).toContain(`CTE ratelimit_${link}`)
  }
})

test.each(['one', 'many', 'several'] as const)(
  'the rows are looked up by prefix and key: %s',
  async (form) => {
    const plan = await planOf(form)
    expect(plan.filter((line) => line.includes('Seq Scan'))).toEqual([])
    const lookups = plan.filter((line) => /Index Cond: .*prefix = .*key = /.test(line))
    expect(lookups.length).toBe(1)
    // What is written finds its row through the conflict, which no plan can do otherwise.
    expect(plan.join()).toContain('Conflict Arbiter Indexes: rate_limit_durable_prefix_key_pk')
  },
)
