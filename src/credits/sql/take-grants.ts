import { and, type SQL, sql } from 'drizzle-orm'
import type { Statement } from '../../kernel/database/statement.ts'
import { ROWS } from '../../kernel/limits/rows.ts'
import { countAfter } from '../../kernel/limits/window.ts'
import {
  builder,
  columnList,
  isDecidedRow,
  isTheRow,
  type Link,
  link,
  name,
  Parameters,
} from '../../kernel/sql/builder.ts'
import { callsFrom } from '../../kernel/sql/calls.ts'
import { decisionNumbers, fromColumn, toColumn } from '../../kernel/sql/columns.ts'
import { DECIDED } from '../../kernel/sql/decided.ts'
import { guard, guardedStatement, type PlanGuard, transactionSettings } from '../../kernel/sql/guard.ts'
import { BY_ITSELF, CLOCK_MS, type Level, level, type QueryLevel } from '../../kernel/sql/levels.ts'
import { lockedRow } from '../../kernel/sql/rows.ts'
import type { WaitingSource } from '../../kernel/sql/take.ts'
import { isGrantOf } from './grants.ts'

const SEEN = 'ratelimit_seen'
const LOCKED = 'ratelimit_locked'

export interface TakeGrantsSource extends Omit<WaitingSource, 'rules' | 'action' | 'takesLess'> {
  /** Whether it is for many keys. */
  readonly isMany: boolean
  /** Whether it gives back to the grant that has paid. */
  readonly givesBack: boolean
}

/** A call of a key. */
const CALL = ['place', 'rate', 'calls']

const OF_KEY = sql`partition by ${name('place')}`

/** The rows of a key in the order in which they pay: first the debt, and then the grants. */
const IN_ORDER = sql`${OF_KEY} order by ${name('position')} rows unbounded preceding`

const NONE = sql`0::float8`

/** Whether it is the first row of its key. With its type: `public` may have an operator that fits better. */
const IS_FIRST = sql`${name('position')} = 1::float8`

/** What each row of the answer says in addition: the number of granted calls, and what the row has paid. */
const PAID = ['granted', 'share', 'made', 'position'] as const

/**
 * The statement that takes from the grants of keys in their order. Its answer for a key is a balance: the sum
 * of the key's grants, less what is owed.
 *
 * It reads the rows of a key, and locks the first ones that have enough together. It decides by what these have
 * under the lock. If others hold one of them, or if they have too little by then and there were more rows,
 * `decided` is false and nothing is charged. If the calls ask for all that the key has, they get what is left.
 * If the key has too little when it is read, the calls are denied without a lock.
 *
 * If it gives back, it locks the grant that has paid, unless a later one has its key by now. It grants the
 * calls to which that grant can give back all. The answer has the rows that have paid, and at least one row for
 * each key.
 */
export function takeGrantsStatement(source: TakeGrantsSource): Statement {
  const { table } = source
  const parameters = new Parameters()
  const guarding = guard([table], source.guarded, parameters)
  const share = name('share', DECIDED)
  const written = builder
    .update(table)
    .set({
      count: toColumn('count', countAfter(fromColumn('count', table.count), share)) as SQL<number>,
    })
    .from(name(DECIDED))
    .where(
      and(
        isDecidedRow(table, parameters, name('row', DECIDED)),
        // The range is always true: see takeManyStatement.
        sql`${share} <> ${NONE} and ${share} between ${sql.raw(`-${MAX_AMOUNT}`)} and ${sql.raw(MAX_AMOUNT)}`,
        guarding.fits(table),
      ),
    )
  const [left, capacity] = [name('left', DECIDED), name('capacity', DECIDED)]
  const balance: Readonly<Record<string, SQL>> = {
    count: sql`${capacity} - ${left}`,
    prev_count: capacity,
    last_refill: name('now', DECIDED),
    tokens: NONE,
  }
  return guardedStatement(parameters, guarding, transactionSettings(source.commit), {
    links: [
      link(SEEN, seenRows(source, parameters, guarding).query),
      lockedRows(source, parameters, guarding),
      link(DECIDED, decidedRows(source, parameters).query),
      link('ratelimit_written', written),
    ],
    columns: [
      ...['place', 'decided', 'row'].map((column) => name(column, DECIDED)),
      decisionNumbers(ROWS.balance, PAID, (column) => balance[column] ?? name(column, DECIDED)),
    ],
    from: sql`(select * from ${name(DECIDED)} where ${IS_FIRST} or ${name('share')} <> ${NONE}) as ${name(DECIDED)}`,
  })
}

const MAX_AMOUNT = `${Number.MAX_SAFE_INTEGER}::float8`

/** The clock, read by itself. Citus and the planner must not copy it to each row. */
function clockOf({ injectedClock }: TakeGrantsSource, parameters: Parameters, from: SQL): SQL {
  const clock = injectedClock ? parameters.number('clock') : CLOCK_MS
  return sql`(select ${clock} as now ${from} ${BY_ITSELF}) as timed`
}

/** The rows that are to pay, and the first row of each other key, with the sums of the key's rows. */
function seenRows(source: TakeGrantsSource, parameters: Parameters, guarding: PlanGuard): QueryLevel {
  const { table, isMany, givesBack } = source
  const owes = sql`${table.windowStart} is null`
  const columns = {
    row: sql`${table.key}`.as('row'),
    owes: owes.as('owes'),
    cap: sql`case when ${owes} then ${NONE} else ${fromColumn('prevCount', table.prevCount)} end`.as('cap'),
    used: fromColumn('count', table.count).as('used'),
    priority: sql`${table.tokens}`.as('priority'),
    ends: sql`${table.windowStart}`.as('ends'),
    made: fromColumn('lastRefill', table.lastRefill).as('made'),
  }
  const isLive = sql`${table.windowStart} > to_timestamp(${name('now', 'timed')} / 1000::float8)`
  const rows = builder
    .select(columns)
    .from(table)
    .where(and(isGrantOf(table, parameters.text('prefix'), sql`call.key`, isLive), guarding.fits(table)))
  const left = sql`${name('cap')} - ${name('used')}`
  const sums = sql`sum(${left}) over () as total, sum(${name('cap')}) over () as capacity`
  const inOrder = sql`
    window in_order as (order by ${columnList(['owes'])} desc, ${columnList(['priority', 'ends', 'made'])},
      ${name('row')} collate "C" rows unbounded preceding)`
  // A refund needs no order of its own.
  const [places, order] = givesBack
    ? [sql`row_number() over () as position`, sql``]
    : [sql`row_number() over in_order as position, sum(${left}) over in_order - (${left}) as before`, inOrder]
  const ordered = sql`select ${columnList(['row', 'owes', 'cap', 'made'])}, ${left} as own, ${places}, ${sums}
    from (${rows.getSQL()} ${BY_ITSELF}) as live${order}`
  const sent = ['rate', 'calls', ...(givesBack ? (['payer', 'paidWindowStart'] as const) : [])] as const
  const one = sent.map((column) => {
    const value = column === 'payer' ? parameters.text(column) : parameters.number(column)
    return sql`${value} as ${name(column)}`
  })
  const calls = isMany
    ? callsFrom(parameters, ['key', ...sent])
    : sql`(select ${parameters.text('key')} as key, ${sql.join(one, sql`, `)}, 1 as place ${BY_ITSELF}) as call`
  const all: Level = {
    source: sql`${clockOf(source, parameters, sql``)} cross join ${calls} left join lateral (${ordered}) as stored on true`,
    columns: [...CALL, 'row', 'owes', 'cap', 'own', 'made'],
  }
  const [needed, total] = [sql`${name('rate')} * ${name('calls')}`, sql`coalesce(${name('total')}, ${NONE})`]
  const pays = givesBack
    ? sql`${name('row')} = ${name('payer', 'call')} and ${name('made')} = ${name('paidWindowStart', 'call')}`
    : sql`${total} >= ${name('rate')} and ${name('own')} <> ${NONE} and ${name('before')} < ${needed}`
  const seen = level('seen', all, {
    total,
    position: sql`coalesce(${name('position')}, 1)::float8`,
    capacity: sql`coalesce(${name('capacity')}, ${NONE})`,
    made: sql`coalesce(${name('made')}, ${NONE})`,
    pays: sql`coalesce(${pays}, false)`,
  })
  return {
    ...seen,
    query: sql`select ${columnList(seen.columns)} from ${seen.source} where ${name('pays')} or ${IS_FIRST}`,
  }
}

/** Locks the rows that are to pay, in the order in which every list locks. */
function lockedRows({ table, waits }: TakeGrantsSource, parameters: Parameters, guarding: PlanGuard): Link {
  const numbers = {
    granted: fromColumn('prevCount', table.prevCount).as('granted'),
    used: fromColumn('count', table.count).as('used'),
    end: fromColumn('windowStart', table.windowStart).as('end'),
  }
  const isPaying = [isTheRow(table, parameters, name('row', 'paying')), guarding.fits(table)]
  const row = lockedRow(table, numbers, isPaying, waits)
  const paying = sql`select ${columnList(['place', 'row'])} from ${name(SEEN)} where ${name('pays')}
    order by ${name('row')} collate "C" ${BY_ITSELF}`
  return link(
    LOCKED,
    sql`select ${columnList(['place', 'row'], 'paying')}, ${columnList(Object.keys(numbers), 'stored')}
      from (${paying}) as paying cross join lateral (${row}) as stored`,
  )
}

/** The levels that decide how many calls of each key are granted, and add the share of each row. */
function decidedRows(source: TakeGrantsSource, parameters: Parameters): QueryLevel {
  const { givesBack } = source
  // The time is read after the last lock.
  const locks = sql`from (select count(*) from ${name(LOCKED)} ${BY_ITSELF}) as locks`
  const found: Level = {
    source: sql`${clockOf(source, parameters, locks)} cross join ${name(SEEN)} left join ${name(LOCKED)} using (place, row)`,
    columns: [...CALL, 'row', 'owes', 'made', 'position', 'pays', 'total', 'capacity', 'now'],
  }
  const [pays, owes] = [name('pays'), name('owes')]
  const isGone = sql`not ${pays} or ${name('end')} <= ${name('now')}`
  const held = sql`case when ${owes} then ${NONE} else ${name('granted')} end`
  const has = level('has', found, {
    missed: sql`${pays} and ${name('used')} is null`,
    has: sql`case when ${isGone} then ${NONE} else ${held} - ${name('used')} end`,
    more: sql`case when ${pays} then case when ${isGone} then ${NONE} else ${held} end - ${name('cap')} else ${NONE} end`,
    seen: sql`case when ${pays} then ${name('own')} else ${NONE} end`,
    ...(givesBack ? { given: sql`case when ${isGone} then ${NONE} else ${name('used')} end` } : {}),
  })
  const sum = (column: string) => sql`sum(${name(column)}) over (${OF_KEY})`
  const due = sql`${name('granted')} * ${name('rate')}`
  const together = level(
    'together',
    has,
    {
      before: sql`sum(${name('has')}) over (${IN_ORDER}) - ${name('has')}`,
      offered: sum(givesBack ? 'given' : 'has'),
      left: sql`${name('total')} - ${sum('seen')} + ${sum('has')}`,
      capacity: sql`${name('capacity')} + ${sum('more')}`,
      missed: sql`bool_or(${name('missed')}) over (${OF_KEY})`,
    },
    ['seen', 'more', 'given'],
  )
  const [rate, calls, total] = [name('rate'), name('calls'), name('total')]
  const granted = level(
    'granted',
    together,
    {
      granted: sql`greatest(least(${calls}, floor(${name('offered')} / ${givesBack ? sql`-${rate}` : rate})), ${NONE})`,
    },
    ['offered'],
  )
  const decided = level(
    'decided',
    granted,
    {
      decided: givesBack
        ? sql`not ${name('missed')}`
        : sql`${total} < ${rate}
            or not ${name('missed')} and (${total} <= ${rate} * ${calls} or ${name('granted')} = ${calls})`,
    },
    ['total', 'missed', 'calls'],
  )
  return level(
    'shared',
    decided,
    {
      share: sql`case when not ${pays} or not ${name('decided')} or ${name('granted')} = ${NONE} then ${NONE}
        when ${owes} then ${name('has')}
        else ${givesBack ? due : sql`greatest(least(${due} - ${name('before')}, ${name('has')}), ${NONE})`} end`,
    },
    ['before', 'has', 'owes', 'pays', 'rate'],
  )
}
