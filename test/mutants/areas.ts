/** A part of the package, and the tests that are nearest to it. */
export interface Area {
  readonly name: string
  /** The files in src/. */
  readonly files: RegExp
  /** The share of the mutants by rules that are made; those by hand all are. */
  readonly share: number
  /** Tests on PGlite and of single modules that are run first, because they are near and quick. */
  readonly near: readonly string[]
}

const ARITHMETIC = ['drivers/vectors', 'answers/rules', 'transactions/limit-all', 'drivers/limiting']

/** The first area that has a file is the file's. */
export const AREAS: readonly Area[] = [
  {
    name: 'statements',
    files: /^statements\//,
    share: 1,
    near: [...ARITHMETIC, 'statements/calls', 'drivers/clock', 'drivers/cleanup', 'quotas/usage'],
  },
  {
    name: 'calendar',
    files: /^algorithms\/periods/,
    share: 1,
    near: ['answers/calendar-window', 'alone/bad-input'],
  },
  {
    name: 'algorithms',
    files: /^algorithms\//,
    share: 0.2,
    near: [...ARITHMETIC, 'answers/calendar-window', 'quotas/force', 'alone/bad-input'],
  },
  {
    name: 'runtime',
    files: /^runtime\//,
    share: 0.2,
    near: [
      ...['alone/coalescer', 'drivers/limiting', 'drivers/errors', 'drivers/cleanup', 'quotas/force'],
      ...['transactions/limit-all', 'drivers/synchronous-commit', 'drivers/unstorable', 'drivers/clock'],
    ],
  },
  {
    name: 'limitAll',
    files: /^check\/(add-up|all-or-nothing|limit-all)/,
    share: 1,
    near: ['transactions/limit-all', 'outages/limit-all', 'statements/calls'],
  },
  { name: 'reservation', files: /^check\/reservation/, share: 1, near: ['quotas/reserve'] },
  {
    name: 'errors',
    files: /^(errors|database\/(database-error|never-sent|retry))/,
    share: 0.5,
    near: ['drivers/errors', 'outages/unreachable', 'outages/timeouts', 'tables/missing'],
  },
  {
    name: 'answers',
    files: /^check\//,
    share: 0.2,
    near: ['answers/rules', 'answers/deny-cache', 'alone/outages', 'drivers/waiting', 'quotas/looking'],
  },
  {
    name: 'database',
    files: /^database\/(run|transaction|connection|statement|session)/,
    share: 0.2,
    near: ['drivers/limiting', 'statements/named', 'outages/limit-all', 'tables/sql'],
  },
  {
    name: 'input',
    files: /^(validate|duration|usage|kysely|ratelimit)/,
    share: 0.1,
    near: ['alone/bad-input', 'quotas/usage', 'quotas/looking', 'drivers/kysely'],
  },
]

/** Slow tests, and the areas that they are about: mutants of others are not worth the time. */
export const SLOW: Readonly<Record<string, readonly string[]>> = {
  'alone/calendar-periods': ['calendar'],
  'outages/secrets': ['errors', 'input', 'database'],
  'tables/check-tables': ['database'],
}
