/** A part of the package. */
export interface Area {
  readonly name: string
  /** The files in src/. */
  readonly files: RegExp
  /** The share of the mutants by rules that are made; those by hand all are. */
  readonly share: number
}

/** The first area that has a file is the file's. */
export const AREAS: readonly Area[] = [
  {
    name: 'statements',
    files: /^statements\//,
    share: 0.25,
  },
  {
    name: 'calendar',
    files: /^algorithms\/periods/,
    share: 0.5,
  },
  {
    name: 'algorithms',
    files: /^algorithms\//,
    share: 0.08,
  },
  {
    name: 'runtime',
    files: /^runtime\//,
    share: 0.08,
  },
  {
    name: 'several',
    files: /^several\//,
    share: 0.3,
  },
  {
    name: 'reservations',
    files: /^reservations\//,
    share: 0.5,
  },
  {
    name: 'errors',
    files: /^(errors|database\/(database-error|never-sent|retry))/,
    share: 0.3,
  },
  {
    name: 'answers',
    files: /^check\//,
    share: 0.08,
  },
  {
    name: 'usage',
    files: /^usage\//,
    share: 0.1,
  },
  {
    name: 'database',
    files: /^database\/(run|transaction|connection|statement|session)/,
    share: 0.1,
  },
  {
    name: 'input',
    files: /^(validate|options|duration|kysely|ratelimit)/,
    share: 0.05,
  },
  {
    name: 'http',
    files: /^http\//,
    share: 0.1,
  },
  { name: 'cli', files: /^cli\//, share: 0.1 },
]

/** Slow tests, and the areas that they are about: mutants of others are not worth the time. */
export const SLOW: Readonly<Record<string, readonly string[]>> = {
  // It counts the files that run, in a process of its own.
  'statements/warm-path': [],
  'alone/calendar-periods': ['calendar'],
  'secrets/secrets': ['errors', 'input', 'database'],
  'tables/check-tables': ['database'],
}
