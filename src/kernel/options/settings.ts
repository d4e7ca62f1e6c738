import { checkOptions, checkSwitch, type NameOf, type OptionNames } from '../base/check-options.ts'
import { SHIPPED } from '../database/table-name.ts'
import { parseDuration } from '../duration.ts'
import type { Limiter } from '../limits/algorithm.ts'
import {
  checkDatabase,
  checkFunction,
  checkHashKeys,
  checkShare,
  checkTablesGiven,
  checkThresholds,
  checkTimeout,
  checkUse,
  ofQuota,
  upTo,
  wordOf,
} from './checks.ts'
import type { QuotaConfig, RatelimitConfig } from './config.ts'
import { checkClock, checkLimiter, checkOption, checkPrefix } from './validate.ts'

type ConfigName = NameOf<QuotaConfig>

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
  readonly [Name in Exclude<ConfigName, 'limiter'>]: Name extends Defaulted
    ? ValueOf<Name>
    : QuotaConfig[Name]
} & { readonly limiter: Limiter }

type ValueOf<Name extends ConfigName> = Exclude<QuotaConfig[Name], undefined>

type Option<Name extends ConfigName> = {
  /** Throws for a value that it cannot have. */
  check(value: ValueOf<Name>, name: string): void
  /** Whether only a `Quota` has it. */
  readonly isOfQuota?: true
} & (undefined extends QuotaConfig[Name] ? { readonly isNeeded?: never } : { readonly isNeeded: true }) &
  (Name extends Defaulted ? { readonly byDefault: ValueOf<Name> } : { readonly byDefault?: never })

const SWITCH = { byDefault: false, check: checkSwitch } as const

/** The number of connections of a server by default. */
const MAX_CONNECTIONS = 100

/** A remembered key takes about half a kilobyte, so more would take many gigabytes. */
const MAX_KEYS = 10_000_000

/** Every option of the constructor, with its check and its default. */
export const OPTIONS: { readonly [Name in ConfigName]: Option<Name> } = {
  prefix: { isNeeded: true, check: checkPrefix },
  clock: { check: checkClock },
  durable: SWITCH,
  tables: { check: checkTablesGiven, byDefault: SHIPPED },
  db: { isNeeded: true, check: checkDatabase },
  limiter: { isNeeded: true, check: checkLimiter },
  synchronousCommit: SWITCH,
  cleanupProbability: { check: checkShare },
  keepEnded: { ...SWITCH, isOfQuota: true },
  grace: { check: parseDuration, isOfQuota: true },
  inMemoryBlock: SWITCH,
  maxBlockedKeys: { check: upTo(MAX_KEYS), byDefault: 10_000 },
  autoMigrate: SWITCH,
  // A call that waits for its own transaction would never end.
  timeout: { check: checkTimeout, byDefault: '5s' },
  onError: { check: wordOf('throw', 'allow', 'deny'), byDefault: 'throw' },
  onDegraded: { check: checkFunction },
  coalesce: {
    check: checkSwitch,
    get byDefault() {
      return !isWorkers()
    },
  },
  connections: { check: upTo(MAX_CONNECTIONS), byDefault: 4 },
  preparedStatements: { check: checkSwitch },
  waitUntil: { check: checkFunction },
  thresholds: { check: checkThresholds, byDefault: [], isOfQuota: true },
  dryRun: SWITCH,
  hashKeys: { check: checkHashKeys, byDefault: false },
  use: { check: checkUse, byDefault: [] },
  onOtherPlan: { check: wordOf('restart', 'throw') },
}

/** Whether this is Workers, where a promise hangs if the I/O of another request resolves it. */
function isWorkers(): boolean {
  return globalThis.navigator?.userAgent === 'Cloudflare-Workers'
}

/**
 * The options of a constructor, checked, with their defaults.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION`
 */
export function settingsOf(given: Given, offered: Offered): Settings {
  checkOptions(given, configNames(offered.periods))
  const { durable = offered.durable } = given
  // What a `Ratelimit` cannot have is refused.
  const config = { ...given, durable } as QuotaConfig
  const values = namesOfAll().map((name) => [name, settingOf(name, config)])
  // The table has every name.
  const settings = Object.fromEntries(values) as Settings
  for (const [isWrong, message] of COMBINATIONS) checkOption(!isWrong(settings, config), message)
  return settings
}

type Given = RatelimitConfig | QuotaConfig

export interface Offered {
  /** The default of `durable`. */
  readonly durable: boolean
  /** Whether it has what only a `Quota` has: the options for periods that have ended, and names. */
  readonly periods: boolean
}

/** The names of the options, also of those that only a `Quota` has. */
export function configNames(hasPeriods = false): OptionNames {
  const checks = namesOfAll().map((name) => [name, hasPeriods || !OPTIONS[name].isOfQuota || ofQuota])
  return Object.fromEntries(checks)
}

function namesOfAll(): readonly ConfigName[] {
  return Object.keys(OPTIONS) as ConfigName[]
}

function settingOf<Name extends ConfigName>(name: Name, config: QuotaConfig): unknown {
  const { isNeeded, byDefault, check } = OPTIONS[name]
  const value = config[name]
  if (value === undefined && !isNeeded) return byDefault
  check(value as Exclude<typeof value, undefined>, name)
  return value
}

type Combination = readonly [isWrong: (settings: Settings, given: QuotaConfig) => unknown, message: string]

/** What cannot be combined, or needs another option. */
const COMBINATIONS: readonly Combination[] = [
  [({ keepEnded, grace }) => grace !== undefined && !keepEnded, 'grace needs keepEnded: true.'],
  [
    ({ keepEnded, cleanupProbability }) => keepEnded && cleanupProbability,
    'keepEnded cannot be combined with cleanupProbability above 0. A sweep would lose periods.',
  ],
  [
    (_, { coalesce, connections }) => coalesce === false && connections !== undefined,
    'coalesce: false cannot be combined with connections. Each call then takes one.',
  ],
  [
    ({ durable, synchronousCommit }) => synchronousCommit && !durable,
    'synchronousCommit needs durable: true.',
  ],
  [
    ({ onError, onDegraded }) => onDegraded && onError === 'throw',
    "onDegraded needs onError: 'allow' or 'deny'.",
  ],
  [
    ({ inMemoryBlock }, { maxBlockedKeys }) => maxBlockedKeys !== undefined && !inMemoryBlock,
    'maxBlockedKeys needs inMemoryBlock: true.',
  ],
]
