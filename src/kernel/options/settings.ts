import { checkOptions, type OptionNames } from '../base/check-options.ts'
import { ofQuota } from './checks.ts'
import type { QuotaConfig, RatelimitConfig } from './config.ts'
import { type ConfigName, OF_QUOTA, OPTIONS, type Settings } from './table.ts'
import { checkOption } from './validate.ts'

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

/** What a class of limiters offers. */
export interface Offered {
  /** The default of `durable`. */
  readonly durable: boolean
  /** Whether it has what only a `Quota` has: the options for periods that have ended, and names. */
  readonly periods: boolean
}

/** The names of the options, also of those that only a `Quota` has. */
export function configNames(hasPeriods = false): OptionNames {
  const checks = namesOfAll().map((name) => [name, hasPeriods || !OF_QUOTA.includes(name) || ofQuota])
  return Object.fromEntries(checks)
}

function namesOfAll(): readonly ConfigName[] {
  return Object.keys(OPTIONS) as ConfigName[]
}

function settingOf<Name extends ConfigName>(name: Name, config: QuotaConfig): unknown {
  const { isNeeded, byDefault, check } = OPTIONS[name]
  const value = config[name]
  if (value === undefined && !isNeeded) return byDefault
  check(value as Exclude<typeof value, undefined>, name, config)
  return value
}

type Combination = readonly [isWrong: (settings: Settings, given: QuotaConfig) => unknown, message: string]

/** What cannot be combined, or needs another option. */
const COMBINATIONS: readonly Combination[] = [
  [({ keepEnded, grace }) => grace !== undefined && !keepEnded, 'grace needs keepEnded: true.'],
  [
    ({ keepEnded, cleanupProbability }) => keepEnded && cleanupProbability,
    'cleanupProbability must be 0 with keepEnded: true, because calls then sweep nothing.',
  ],
  [
    (_, { coalesce, connections }) => coalesce === false && connections !== undefined,
    'connections cannot be combined with coalesce: false.',
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
