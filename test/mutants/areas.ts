/** A part of the package, and the tests that are nearest to it. */
export interface Area {
  readonly name: string
  /** The files in src/. */
  readonly files: RegExp
  /** The share of the mutants by rules that are made; those by hand all are. */
  readonly share: number
  /** Tests that are run first, because they are near and quick. */
  readonly near: readonly string[]
}

const ARITHMETIC = ['drivers/vectors', 'answers/rules', 'transactions/limit-all', 'drivers/limiting']

/** The first area that has a file is the file's. */
export const AREAS: readonly Area[] = [
  {
    name: 'statements',
    files: /^statements\//,
    share: 0.25,
    near: [
      ...[...ARITHMETIC, 'statements/calls', 'drivers/clock', 'drivers/cleanup', 'quotas/usage'],
      ...['quotas/at-least', 'quotas/balance', 'quotas/reserve', 'quotas/ended', 'quotas/row-numbers'],
      ...['quotas/close-periods', 'drivers/synchronous-commit', 'drivers/waiting', 'concurrency/held'],
    ],
  },
  {
    name: 'calendar',
    files: /^algorithms\/periods/,
    share: 0.5,
    near: ['answers/calendar-window', 'alone/bad-input', 'alone/calendar-periods'],
  },
  {
    name: 'algorithms',
    files: /^algorithms\//,
    share: 0.08,
    near: [
      ...[...ARITHMETIC, 'answers/calendar-window', 'quotas/force', 'alone/bad-input', 'alone/search'],
      ...['quotas/balance', 'quotas/ended', 'quotas/usage', 'quotas/row-numbers', 'drivers/cleanup'],
    ],
  },
  {
    name: 'runtime',
    files: /^runtime\//,
    share: 0.08,
    near: [
      ...[
        'alone/coalescer',
        'alone/direct',
        'drivers/limiting',
        'answers/calendar-window',
        'quotas/force',
        'quotas/reserve',
      ],
      ...['outages/timeouts', 'transactions/limit-all', 'alone/outages', 'drivers/errors'],
      ...['quotas/at-least', 'quotas/ended', 'alone/decide', 'concurrency/held', 'tables/auto-migrate'],
    ],
  },
  {
    name: 'limitAll',
    files: /^check\/(add-up|adjust-all|all-or-nothing|limit-all|together)/,
    share: 0.3,
    near: [
      ...['transactions/limit-all', 'outages/limit-all', 'statements/calls', 'quotas/reserve-all'],
      ...['quotas/force-all', 'quotas/spend', 'alone/outages', 'concurrency/limit-all'],
    ],
  },
  {
    name: 'reservation',
    files: /^check\/(once|reservation|reserve-all|settlement|token)/,
    share: 0.5,
    near: [
      ...['quotas/reserve', 'quotas/settle', 'quotas/reserve-all', 'quotas/settled', 'quotas/dry-run'],
      ...['alone/outages', 'alone/once'],
    ],
  },
  {
    name: 'errors',
    files: /^(errors|database\/(database-error|never-sent|retry))/,
    share: 0.3,
    near: ['drivers/errors', 'alone/errors', 'outages/unreachable', 'outages/timeouts', 'tables/missing'],
  },
  {
    name: 'answers',
    files: /^check\//,
    share: 0.08,
    near: [
      ...['answers/rules', 'answers/deny-cache', 'alone/outages', 'drivers/waiting', 'quotas/looking'],
      ...['quotas/at-least', 'quotas/spend', 'quotas/balance', 'quotas/close-periods', 'quotas/ended'],
      ...['quotas/reserve', 'quotas/thresholds', 'quotas/settled', 'quotas/dry-run', 'drivers/cleanup'],
      ...['alone/direct', 'transactions/transactions'],
    ],
  },
  {
    name: 'database',
    files: /^database\/(run|transaction|connection|statement|session)/,
    share: 0.1,
    near: [
      'drivers/limiting',
      'statements/named',
      'outages/limit-all',
      'tables/sql',
      'transactions/transactions',
    ],
  },
  {
    name: 'input',
    files: /^(validate|duration|usage|kysely|ratelimit|close-periods|row-numbers)/,
    share: 0.05,
    near: [
      ...['alone/bad-input', 'quotas/usage', 'quotas/looking', 'drivers/kysely'],
      ...['quotas/close-periods', 'quotas/row-numbers', 'alone/hashed-keys'],
    ],
  },
  {
    name: 'http',
    files: /^http\//,
    share: 0.1,
    near: [
      ...['http/headers', 'http/client-key', 'http/guard', 'http/express', 'http/fastify', 'http/hono'],
      ...['http/trpc', 'http/better-auth', 'http/next-redirect'],
    ],
  },
  { name: 'cli', files: /^cli\//, share: 0.1, near: ['package/cli'] },
]

/** Slow tests, and the areas that they are about: mutants of others are not worth the time. */
export const SLOW: Readonly<Record<string, readonly string[]>> = {
  // It counts the files that run, in a process of its own.
  'statements/warm-path': [],
  'alone/calendar-periods': ['calendar'],
  'secrets/secrets': ['errors', 'input', 'database'],
  'tables/check-tables': ['database'],
}
