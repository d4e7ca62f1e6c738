import { checkSwitch, type NameOf } from '../base/check-options.ts'
import { checkDatabase, checkTablesGiven } from '../database/given.ts'
import type { Limiter } from '../limits/algorithm.ts'
import { SHIPPED } from '../tables/shipped.ts'
import {
  checkDuration,
  checkFunction,
  checkHashKeys,
  checkShare,
  checkThresholds,
  checkTimeout,
  checkUse,
  upTo,
  wordOf,
} from './checks.ts'
import type { QuotaConfig } from './config.ts'
import { checkClock, checkLimiter, checkPrefix } from './validate.ts'

/** The name of an option of the constructor. */
export type ConfigName = NameOf<QuotaConfig>

/** The options that have a value also where none is given. */
type Defaulted =
  | 'durable'
  | 'tables'
  | 'synchronousCommit'
  | 'keepEnded'
  | 'inMemoryBlock'
  | 'maxBlockedKeys'
  | 'autoMigrate'
  | 'timeout'
  | 'onError'
  | 'coalesce'
  | 'connections'
  | 'thresholds'
  | 'dryRun'
  | 'hashKeys'
  | 'use'

/** The options of a constructor, checked, with their defaults. */
export type Settings = {
  readonly [Name in Exclude<ConfigName, 'limiter'>]: Name extends Defaulted ? Given<Name> : QuotaConfig[Name]
} & { readonly limiter: Limiter }

type Given<Name extends ConfigName> = Exclude<QuotaConfig[Name], undefined>

/** The options that only a `Quota` has. */
export const OF_QUOTA: readonly ConfigName[] = ['keepEnded', 'grace', 'thresholds']

/** An option of the constructor of `Quota`. */
interface Option<Name extends ConfigName> {
  /** Whether it must be given. */
  readonly isNeeded: undefined extends QuotaConfig[Name] ? false : true
  /** Its value where none is given. */
  readonly byDefault: Name extends Defaulted ? Given<Name> : undefined
  /** Throws for a value that it cannot have. */
  check(value: Given<Name>, name: string, given: QuotaConfig): void
}

const OPTIONAL = { isNeeded: false, byDefault: undefined } as const
const NEEDED = { ...OPTIONAL, isNeeded: true } as const

const SWITCH = { byDefault: false, check: checkSwitch }

/** The number of connections of a server by default. */
const MAX_CONNECTIONS = 100

/** A remembered key takes about half a kilobyte, so more would take many gigabytes. */
const MAX_KEYS = 10_000_000

/** Every option of the constructor, with its check and its default. */
export const OPTIONS: { readonly [Name in ConfigName]: Option<Name> } = {
  prefix: { ...NEEDED, check: checkPrefix },
  clock: { ...OPTIONAL, check: checkClock },
  durable: { ...OPTIONAL, ...SWITCH },
  tables: { ...OPTIONAL, check: checkTablesGiven, byDefault: SHIPPED },
  db: { ...NEEDED, check: checkDatabase },
  limiter: { ...NEEDED, check: checkLimiter },
  synchronousCommit: { ...OPTIONAL, ...SWITCH },
  cleanupProbability: { ...OPTIONAL, check: checkShare },
  keepEnded: { ...OPTIONAL, ...SWITCH },
  grace: { ...OPTIONAL, check: checkDuration },
  inMemoryBlock: { ...OPTIONAL, ...SWITCH },
  maxBlockedKeys: { ...OPTIONAL, check: upTo(MAX_KEYS), byDefault: 10_000 },
  autoMigrate: { ...OPTIONAL, ...SWITCH },
  // A call that waits for its own transaction would never end.
  timeout: { ...OPTIONAL, check: checkTimeout, byDefault: '5s' },
  onError: { ...OPTIONAL, check: wordOf('throw', 'allow', 'deny'), byDefault: 'throw' },
  onDegraded: { ...OPTIONAL, check: checkFunction },
  coalesce: {
    ...{ ...OPTIONAL, check: checkSwitch },
    get byDefault() {
      return !isWorkers()
    },
  },
  connections: { ...OPTIONAL, check: upTo(MAX_CONNECTIONS), byDefault: 4 },
  preparedStatements: { ...OPTIONAL, check: checkSwitch },
  waitUntil: { ...OPTIONAL, check: checkFunction },
  thresholds: { ...OPTIONAL, check: checkThresholds, byDefault: [] },
  dryRun: { ...OPTIONAL, ...SWITCH },
  hashKeys: { ...OPTIONAL, check: checkHashKeys, byDefault: false },
  use: { ...OPTIONAL, check: checkUse, byDefault: [] },
  onOtherPlan: { ...OPTIONAL, check: wordOf('restart', 'throw') },
}

/** Whether this is Workers, where a promise hangs if the I/O of another request resolves it. */
function isWorkers(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers'
}
