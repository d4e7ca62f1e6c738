/** The parts of the package that can be removed: `src/<name>/` or `src/<name>.ts`, with `test/<name>/`. */
export const WINGS = [
  'calendar',
  'citus',
  'cli',
  'credits',
  'dashboard',
  'denials',
  'http',
  'kysely',
  'ledger',
  'lockout',
  'members',
  'otel',
  'prefetch',
  'quota',
  'reports',
  'schedule',
  'semaphore',
] as const

export type Wing = (typeof WINGS)[number]

/** The wings that show what another wing finds. They go with it. */
export const SHOWN_BY: Readonly<Partial<Record<Wing, readonly Wing[]>>> = {
  reports: ['cli', 'dashboard', 'kysely'],
}

/** The wing that a file of `src/` is in. */
export function wingOf(file: string): Wing | undefined {
  return WINGS.find((wing) => file.startsWith(`src/${wing}/`) || file === `src/${wing}.ts`)
}
