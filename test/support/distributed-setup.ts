import { existsSync } from 'node:fs'
import { beforeEach } from 'vitest'
import { SHIPPED } from '../../src/kernel/database/table-name.ts'
import { tableOf } from '../../src/kernel/engine/own-layer.ts'

// The first call of a process reads where the shards of its table are. Before tests that count statements or
// let them fail, it has been made, whichever file of the process comes first.
const withoutCitus = {
  execute: async () => [{ there: false }],
  transaction: () => Promise.reject(new Error('not needed')),
  refreshMaterializedView: undefined,
}
for (const table of [SHIPPED.ephemeral, SHIPPED.durable]) {
  const { load } = tableOf(table, [])
  if (!load) throw new Error('The plugin of projects.ts gives no limiter the store of Citus.')
  await load(withoutCitus)
}

/**
 * Tests of the statements of one server, by file and by words of their names; a file without words is skipped
 * whole. They count statements, or read their texts, plans or settings, which distributed tables have others
 * of.
 */
const OF_ONE_SERVER: Readonly<Record<string, readonly string[]>> = {
  'behaviour/answers/blocked-until.test.ts': [],
  'calendar/postgres/calendar-window.test.ts': [
    'a period of a row ahead of the clock does not count as the present period',
    'about a period behind, in months of different lengths, there is an answer',
    'the charge commits with it, or rolls back',
    'the first check takes two statements and a look one, also where this process is days off in the same month',
    'this process is in another month: many keys at once',
  ],
  'behaviour/answers/deny-cache.test.ts': [
    'a denial lasts as long as it said, counted from the moment the call was sent',
    'at most maxBlockedKeys are remembered: the latest ones',
    "remembers a plan's denial too",
    'repeated denials need no database, other keys and other limits do',
    'the database is asked when an injected clock goes back',
    'without inMemoryBlock no denial is remembered',
  ],
  'behaviour/answers/plans-at-once.test.ts': ['have one text', 'share statements'],
  'schedule/answers/schedule.test.ts': ['share a statement'],
  'schedule/statements/own-transactions.test.ts': ['its connection keeps its statements'],
  'behaviour/drivers/cleanup.test.ts': [
    '1 has a call sweep afterwards, a hundred rows at most',
    'after a sweep of fewer than a hundred rows no call sweeps for a moment',
    'by default one call in ten: with a draw of 0.0999, 1',
    'in a transaction no call sweeps',
  ],
  'behaviour/drivers/databases.test.ts': [
    'an answer without a row for the key is an error at once',
    'every method works without interactive transactions, as on neon-http',
    'estimates with grace are settled without transactions',
  ],
  'behaviour/drivers/errors.test.ts': [
    'a look, a reset and a cleanup are tried again',
    'fails those keys only, and the charged ones get their answers',
    'is tried again, and no more than some times',
  ],
  'behaviour/drivers/limiting.test.ts': [
    'share statements: two for new keys at each place, and few for known keys',
    'when a statement fails, its own calls fail and no others',
    'with plans that are equal but not the same object share statements, for each prefix',
  ],
  'behaviour/drivers/renaming.test.ts': ['a cleanup that cannot read how many rows it deleted ends'],
  'behaviour/drivers/synchronous-commit.test.ts': [],
  'behaviour/drivers/unstorable.test.ts': ['keys that the encoding of the database cannot store fail alone'],
  'ledger/concurrency/entries.test.ts': ['what the application waits for delays no call of others'],
  'ledger/quotas/entries.test.ts': ['calls that share a statement hand out their entries together'],
  // Distributed tables have no dated credits.
  'ledger/quotas/credit-entries.test.ts': [],
  'credits/quotas/credits.test.ts': [],
  'credits/quotas/credits-model.test.ts': [],
  'credits/quotas/limit-all-credits.test.ts': [],
  'quota/quotas/reserve-all-credits.test.ts': [],
  'quota/quotas/spend-credits.test.ts': [],
  'quota/quotas/named.test.ts': ['to reserve is one statement'],
  'quota/quotas/named-lists.test.ts': ['it is one statement'],
  'quota/quotas/change-plan.test.ts': ['the grace time of the first half begins with the change'],
  'ledger/concurrency/credit-entries.test.ts': [],
  'credits/concurrency/credits.test.ts': [],
  'credits/concurrency/credits-shared.test.ts': [],
  'denials/quotas/denied.test.ts': ['when counts are written'],
  'behaviour/drivers/watching.test.ts': ['each statement is published with the number of keys that share it'],
  'prefetch/answers/prefetch.test.ts': [
    'a call that fetches a stock shares its statement with calls that fetch none',
    'get back all stocks that are over by one statement',
  ],
  'behaviour/quotas/at-least.test.ts': ['calls with and without atLeast share a statement'],
  'behaviour/outages/timeouts.test.ts': ['fails all, after a few statements instead of one for each key'],
  'behaviour/outages/limit-all.test.ts': [
    'its backend ends while it waits for a row',
    'its connections break',
    'the settings of its statements',
    "if others remove its rows again and again, onError 'allow' does not let it pass",
  ],
  'quota/quotas/close-periods.test.ts': [
    'it reads as many rows as it may close, and then twice as many each time',
    'leaves a row that a call renews after it was found',
  ],
  'behaviour/quotas/dry-run.test.ts': ['a remembered denial still lets the call pass'],
  'behaviour/quotas/force.test.ts': [
    'a remembered denial does not answer a forced call',
    'many forced calls at once: each answer has what is left after it',
  ],
  'behaviour/quotas/plans.test.ts': ['the remembered denial of a blocked plan'],
  'behaviour/quotas/reserve.test.ts': [
    'a reservation in a transaction is charged and settled with it',
    'is refused, and it stays open',
  ],
  'behaviour/quotas/zero.test.ts': ['credits'],
  'quota/quotas/thresholds.test.ts': ['one of equal calls at once crosses it'],
  'behaviour/statements/count.test.ts': [],
  'behaviour/statements/named.test.ts': [],
  'behaviour/transactions/limit-all.test.ts': [
    'new rows are two statements, and known ones one, alone and joined',
    'where most keys are new, a list is one statement',
    'limitAll sweeps afterwards like a single check, and not inside a transaction',
  ],
  'behaviour/transactions/transactions.test.ts': [
    'a limiter that is built on a transaction joins it with every call',
  ],
  'concurrency/held.test.ts': [
    'a wait that ends just before its row is found held',
    'in a batch of new keys of which another transaction is making one, the others are decided at once',
  ],
  'concurrency/interleavings.test.ts': ['limitAll locks in one order'],
  'quota/concurrency/named.test.ts': ['a settlement whose answer is lost'],
  // Looks at distributed tables do not ask for policies.
  'concurrency/hidden-rows.test.ts': [],
  'concurrency/once.test.ts': ['is one statement', 'share statements'],
  'concurrency/shared-lists.test.ts': [
    'rows share statements',
    'calls of keys that can be blocked share a statement',
    'estimates that are settled at the same time share statements',
    'lists whose rows are there and free share statements',
    'lists whose statement failed for a reason of its own are not sent one by one',
  ],
}

for (const file of Object.keys(OF_ONE_SERVER)) {
  if (!existsSync(`test/${file}`)) throw new Error(`There is no test/${file}.`)
}

beforeEach(({ task, skip }) => {
  const names = [task.name]
  for (let { suite } = task; suite; suite = suite.suite) names.unshift(suite.name)
  const file = Object.keys(OF_ONE_SERVER).find((each) => task.file.name.endsWith(each))
  const words = file === undefined ? undefined : OF_ONE_SERVER[file]
  const isSkipped = words && (words.length === 0 || words.some((each) => names.join(' > ').includes(each)))
  skip(isSkipped === true, 'about the statements of one server')
})
