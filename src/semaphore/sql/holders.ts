import { sql } from 'drizzle-orm'
import type { RateLimitTable } from '../../../schema/index.ts'
import type { Statement } from '../../kernel/database/statement.ts'
import { chain, link, name, Parameters } from '../../kernel/sql/builder.ts'
import { answered } from '../../kernel/sql/columns.ts'
import { CLOCK_MS } from '../../kernel/sql/levels.ts'
import { lockName, SLOTS_HELD } from './held-slots.ts'
import { slotsOfKey } from './slot-rows.ts'

const CALL = name('ratelimit_call')

/**
 * The statement that lists the slots of a key that are held: under a lease, or by an open transaction. It locks
 * and writes nothing. The row of a slot that another transaction holds is not committed, so its lease is
 * unknown. This transaction sees its own, which has no end.
 */
export function holdersStatement(table: RateLimitTable, injectedClock: boolean): Statement {
  const parameters = new Parameters()
  const [prefix, key] = [parameters.text('prefix'), parameters.text('key')]
  const now = injectedClock ? parameters.number('clock') : CLOCK_MS
  const held = sql`select held.* from ${CALL} as call cross join lateral (${SLOTS_HELD}) as held`
  const slots = sql`select slot.* from ${CALL} as call cross join lateral (${slotsOfKey(table, prefix)}) as slot`
  return parameters.render(
    chain(
      [
        link(
          'ratelimit_call',
          sql`select ${key} as key, ${lockName(table, prefix, key)} as lock_name, ${now} as now`,
        ),
        link('ratelimit_held', held),
        link('ratelimit_slots', slots),
      ],
      sql`select number, ${sql.join(answered(['fence', 'ends']), sql`, `)} from (
        select number, case when own is distinct from false then count end as fence, case when own is null then ends end as ends
        from ratelimit_slots full join ratelimit_held using (number) cross join ${CALL}
        where number > 0 and (own is not null or ends > now)
      ) as answered order by number`,
    ),
  )
}
