import type { Usage } from '../kernel/answers/results.ts'
import { uncharged } from '../kernel/database/database-error.ts'
import { mustHave } from '../kernel/database/rows.ts'
import { type Row, runOnce } from '../kernel/database/run.ts'
import { kept } from '../kernel/database/statement.ts'
import type { Duration } from '../kernel/duration.ts'
import type { Checker } from '../kernel/engine/checker.ts'
import { RatelimitError } from '../kernel/errors.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import { answerOnce } from '../kernel/lists/limit-all.ts'
import { callOf } from '../kernel/options/validate.ts'
import { exactNumber } from '../shared/number-columns.ts'
import { inDigits } from '../shared/readable.ts'
import type { Act, Field, FieldValues, Held, KeysAsked, ShownKeys, ShownParts } from '../shared/shown.ts'
import { balance } from './balance.ts'
import { NEVER_MS } from './grant.ts'
import { grantOnce } from './grant-balance.ts'
import { type GrantResult, grant, grantsOf, voidGrant } from './grants.ts'
import { rowIn } from './keys.ts'
import { accountOf, readUsage } from './read.ts'
import { endingStatement, leastLeftStatement, MAX_READ, mostUsedStatement } from './sql/all-keys.ts'
import { usageBy } from './usage.ts'

// What credits show to operators, and let them do. The page knows the rows of undated credits by itself.

const AMOUNT: Field = { name: 'amount', label: 'Credits', of: 'count' }
const ENDS: Field = {
  name: 'expires',
  label: 'Which end in',
  of: [
    ['30d', '30 days'],
    ['7d', '7 days'],
    ['90d', '90 days'],
    ['365d', 'a year'],
    ['never', 'never'],
  ],
}

/** A form that was shown once grants once, and takes back once. */
function idOfForm(once: string): string {
  return `page:${once}`
}

export function shownUndated(checker: Checker): ShownParts {
  const callOn = (key: string, { amount }: FieldValues) =>
    callOf(checker.rows.namespace.prefix, balance(), key, { rate: Number(amount) })
  const give = giving('Add credits to what the key has.', [AMOUNT], (key, values) => {
    const once = { id: idOfForm(values.once), for: '1d' } as const
    return grantOnce({ checker, call: callOn(key, values) }, once, undefined)
  })
  const take: Act = {
    ...{ name: 'take back', needs: 'grant', label: 'Take back' },
    about: 'Charge credits as used. If the key has fewer, nothing is charged.',
    fields: [AMOUNT],
    run: async (key, values) => {
      const once = { id: `${idOfForm(values.once)}:back`, for: '1d' } as const
      const { answer } = await answerOnce({ checker, call: callOn(key, values) }, once, undefined)
      if (answer.degraded) {
        throw new RatelimitError(
          'OUTCOME_UNKNOWN',
          'The database did not answer, so nothing is known to be taken back. The same form again takes it once.',
        )
      }
      const left = inDigits(answer.remaining)
      if (!answer.success) return { now: `Nothing was taken back: it has ${left}.` }
      if (answer.wouldDeny)
        return { now: 'Nothing was taken back: it has less, and dryRun takes nothing then.' }
      return {
        change: `${amountIn(values)} were taken back.`,
        now: nowHas(answer.remaining, answer.repeated),
      }
    },
  }
  return { acts: [give, take] }
}

/** Says the same each time, so that a log has the change even if the first time could not be written. */
function giving(
  about: string,
  fields: readonly Field[],
  grants: (key: string, values: FieldValues) => Promise<GrantResult>,
): Act {
  return {
    ...{ name: 'grant', needs: 'grant', label: 'Grant', about, fields },
    run: async (key, values) => {
      const { remaining, repeated } = await grants(key, values)
      return { change: `${amountIn(values)} were granted.`, now: nowHas(remaining, repeated) }
    },
  }
}

function nowHas(remaining: number, repeated: true | undefined): string {
  return `${repeated ? 'That was done before, and is not done again. ' : ''}It has ${inDigits(remaining)}.`
}

function amountIn({ amount }: FieldValues): string {
  return `${inDigits(Number(amount))} credits`
}

export function shownDated(checker: Checker, limiter: StoredLimiter): ShownParts {
  const account = (key: string) => accountOf(checker, limiter, key)
  const give = giving('Add a grant to what the key has.', [AMOUNT, ENDS], async (key, values) => {
    const { once, amount, expires } = values
    const ends = expires === 'never' ? undefined : (expires as Duration)
    return grant(account(key), Number(amount), { id: idOfForm(once), expires: ends })
  })
  const take: Act = {
    ...{ name: 'take back', needs: 'grant', label: 'Take back', of: 'grants' },
    about: 'End the grant now. What was used of it stays used.',
    fields: [],
    run: async (key, { held = '' }) => {
      const left = await voidGrant(account(key), held, {})
      if (left === 0)
        return { now: `Nothing was taken back: the grant ${held} has nothing left, or has ended.` }
      return { change: `The grant ${held} has ended. ${inDigits(left)} credits were taken back.` }
    },
  }
  return {
    rule: 'what was granted, each grant until its end',
    keys: (asked) => leastLeft(checker, asked),
    mostUsed: async ({ db, top, now }) => {
      const values = { clock: now, part: '', size: top }
      const rows = await ask(checker, 'most used', mostUsedStatement, values, { db })
      return rows.map((row) => ({ key: String(row['key']), ...usageIn(row, now) }))
    },
    look: async (key) => {
      const [usage] = await readUsage(checker, [account(key).key], undefined)
      const { limit, used, remaining: left, reset, blockedUntil } = mustHave(usage)
      const isNew = limit === 0 && used === 0 && blockedUntil === undefined
      return isNew ? undefined : { key, used, limit, left, reset, blockedUntil }
    },
    holdings: [
      {
        name: 'grants',
        title: 'Grants that end',
        columns: ['Grant', 'Left'],
        list: async ({ key, ...asked }) => (key === undefined ? ending(checker, asked) : ofKey(account(key))),
      },
    ],
    acts: [give, take],
  }
}

async function ofKey(account: ReturnType<typeof accountOf>): Promise<Held[]> {
  const live = (await grantsOf(account, {})).filter(({ ended }) => ended === undefined)
  return live.map(({ id, left, granted, expires }) => {
    return { key: account.key, name: id, amount: left, since: granted, until: expires }
  })
}

async function leastLeft(checker: Checker, { part, offset, size, now }: KeysAsked): Promise<ShownKeys> {
  const values = { clock: now, part, size, offset }
  const rows = await ask(checker, 'least left', leastLeftStatement, values)
  const number = (column: string) => Number(rows[0] ? mustHave(rows[0][column]) : 0)
  return {
    keys: rows.map((row) => {
      const { limit, used, remaining: left, reset } = usageIn(row, now)
      return { key: String(mustHave(row['key'])), used, limit, left, reset }
    }),
    total: number('total'),
    full: number('nothing'),
    cut: number('seen') >= MAX_READ ? `the ${inDigits(MAX_READ)} grants that end last` : undefined,
  }
}

function usageIn(row: Row, now: number): Usage {
  return usageBy({ now, granted: exactNumber(row['granted']), used: exactNumber(row['used']) })
}

async function ending(checker: Checker, { size, now }: { size: number; now: number }): Promise<Held[]> {
  const rows = await ask(checker, 'ending grants', endingStatement, { clock: now, size, never: NEVER_MS })
  return rows.map((row) => {
    const { key, name = '' } = rowIn(String(mustHave(row['row'])))
    return {
      ...{ key, name },
      amount: exactNumber(row['granted']) - exactNumber(row['used']),
      since: exactNumber(row['made']),
      until: exactNumber(row['ends']),
    }
  })
}

function ask(
  { rows: { connection, table, namespace } }: Checker,
  name: string,
  build: typeof endingStatement,
  values: Readonly<Record<string, string | number>>,
  own: Parameters<typeof runOnce>[0] = connection,
): Promise<readonly Row[]> {
  const statement = kept(table.statements, name, () => build(table.table))
  return uncharged(runOnce(own, statement, { prefix: namespace.prefix, ...values }))
}
