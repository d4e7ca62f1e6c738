import { checkOptions, type OptionNames } from '../base/check-options.ts'
import type { RatelimitConfig } from './config.ts'
import type { Kind } from './kinds.ts'
import { type ConfigName, OPTIONS, type Settings } from './table.ts'
import { checkOption, isBalance } from './validate.ts'

/**
 * The options of a constructor, checked, with their defaults.
 *
 * @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION`
 */
export function settingsOf(given: { readonly [Name in ConfigName]?: unknown }): Settings {
  checkOptions(given, configNames(Object(given?.limiter).kind))
  // Credits lack options, which are undefined then.
  const config = given as RatelimitConfig
  const values = namesOfAll().map((name) => [name, settingOf(name, config)])
  // The table has every name.
  const settings = Object.fromEntries(values) as Settings
  for (const [isWrong, message] of COMBINATIONS) checkOption(!isWrong(settings, config), message)
  return settings
}

/** The names of the options that a limiter of this kind has. */
export function configNames(kind: Kind): OptionNames {
  const own = namesOfAll().filter((name) => kind !== 'credits' || OPTIONS[name].credits)
  return Object.fromEntries(own.map((name) => [name, true]))
}

function namesOfAll(): readonly ConfigName[] {
  return Object.keys(OPTIONS) as ConfigName[]
}

function settingOf<Name extends ConfigName>(name: Name, config: RatelimitConfig): unknown {
  const { isNeeded, byDefault, check } = OPTIONS[name]
  const value = config[name]
  if (value === undefined && !isNeeded) return byDefault
  check(value as Exclude<typeof value, undefined>, name, config)
  return value
}

type Combination = readonly [
  isWrong: (settings: Settings, given: RatelimitConfig) => unknown,
  message: string,
]

/** What cannot be combined, or needs another option. */
const COMBINATIONS: readonly Combination[] = [
  [
    (_, { onEntries, distributed, lease }) => onEntries && (distributed || lease),
    'onEntries cannot be combined with distributed or lease.',
  ],
  [({ keepEnded, grace }) => grace !== undefined && !keepEnded, 'grace needs keepEnded: true.'],
  [
    ({ keepEnded, cleanupProbability }) => keepEnded && cleanupProbability,
    'cleanupProbability must be 0 with keepEnded: true, because calls then sweep nothing.',
  ],
  [
    (_, { coalesce, connections }) => coalesce === false && connections !== undefined,
    'connections has no meaning with coalesce: false.',
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
  [
    (_, { blocks, dryRun, inMemoryBlock, lease, limiter }) =>
      blocks && (dryRun || inMemoryBlock || lease || limiter.algorithm.numbers.block),
    'blocks has no meaning with dryRun, inMemoryBlock or lease, and a lockout can be blocked without it.',
  ],
  [
    ({ coalesce }, { lease, durable, keepEnded, thresholds, limiter }) =>
      lease &&
      (durable ||
        keepEnded ||
        thresholds ||
        !coalesce ||
        isBalance(limiter) ||
        limiter.algorithm.excludesLeases),
    'lease has no meaning with durable, keepEnded, thresholds, a balance, a lockout or coalesce: false, as in Workers.',
  ],
]
