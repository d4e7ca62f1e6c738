import { checkOptions, checkSwitch } from '../base/check-options.ts'
import { isTransaction } from '../database/database.ts'
import { checkDatabase } from '../database/given.ts'
import { parseDuration } from '../duration.ts'
import { DENIAL_NAMES, type DenialOptions } from './common.ts'
import { CONFIG_NAMES, type RatelimitConfig } from './config.ts'
import {
  CONCURRENCY_CONFIG_NAMES,
  type ConcurrencyConfig,
  CREDITS_CONFIG_NAMES,
  type CreditsConfig,
} from './kinds.ts'
import { checkLimiter, checkOption, checkRows, isConcurrency, isCredits } from './validate.ts'

/** The number of connections of a server by default. */
const MAX_CONNECTIONS = 100

/** A remembered key takes about half a kilobyte, so more would take many gigabytes. */
const MAX_KEYS = 10_000_000

/** In characters. Shorter secrets can be guessed. */
const MIN_SECRET = 16

/** The rows of denials are hourly. */
const MAX_EVERY_MS = 3_600_000

/** Each write adds to this many rows, in one statement. */
const MAX_TOP = 500

/** The options that are true or false, except `durable`. */
const SWITCHES: readonly (keyof RatelimitConfig)[] = [
  'synchronousCommit',
  'inMemoryBlock',
  'keepEnded',
  'coalesce',
  'dryRun',
  'autoMigrate',
  'distributed',
  'preparedStatements',
  'blocks',
]

/** @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION` */
export function checkConfig(given: RatelimitConfig | ConcurrencyConfig | CreditsConfig): void {
  const leases = isConcurrency(given?.limiter)
  const credits = isCredits(given?.limiter)
  checkOptions(given, leases ? CONCURRENCY_CONFIG_NAMES : credits ? CREDITS_CONFIG_NAMES : CONFIG_NAMES)
  // Options that leases and credits do not have are undefined.
  const config: RatelimitConfig = given as RatelimitConfig
  checkRows(config)
  const { db, limiter, durable, synchronousCommit } = config
  const {
    keepEnded = false,
    thresholds = [],
    onError = 'throw',
    onDegraded,
    coalesce,
    waitUntil,
    reservationSecret,
    hashKeys,
  } = config
  const { cleanupProbability = 0, inMemoryBlock = false, maxBlockedKeys, connections = 1 } = config
  checkDatabase(db)
  if (!leases && !credits) checkLimiter(limiter)
  for (const name of SWITCHES) checkSwitch(name, config[name])
  checkOption(
    Array.isArray(thresholds) && Array.from(thresholds).every(isThreshold),
    'thresholds must be a list of shares above 0, { used } above 0, and { left } of 0 or more.',
  )
  checkOption(
    Number.isFinite(cleanupProbability) && cleanupProbability >= 0 && cleanupProbability <= 1,
    'cleanupProbability must be a number from 0 to 1.',
  )
  checkOption(
    config.onEntries === undefined ||
      (typeof config.onEntries === 'function' && !config.distributed && !config.lease),
    'onEntries must be a function, without distributed and lease.',
  )
  checkOption(keepEnded || config.grace === undefined, 'grace needs keepEnded: true.')
  checkOption(
    !keepEnded || cleanupProbability === 0,
    'cleanupProbability must be 0 with keepEnded: true, because calls then sweep nothing.',
  )
  checkOption(
    isFrom1To(MAX_CONNECTIONS, connections),
    `connections must be a whole number from 1 to ${MAX_CONNECTIONS}.`,
  )
  checkOption(
    coalesce !== false || config.connections === undefined,
    'connections has no meaning with coalesce: false.',
  )
  checkOption(waitUntil === undefined || typeof waitUntil === 'function', 'waitUntil must be a function.')
  checkOption(
    reservationSecret === undefined || isSecret(reservationSecret),
    `reservationSecret must have at least ${MIN_SECRET} characters.`,
  )
  checkOption(
    ['boolean', 'undefined'].includes(typeof hashKeys) || isSecret(hashKeys),
    `hashKeys must be true, false, or a secret of at least ${MIN_SECRET} characters.`,
  )
  checkOption(durable === true || !synchronousCommit, 'synchronousCommit needs durable: true.')
  checkOption(
    [undefined, 'begin anew', 'throw'].includes(config.onOtherPlan),
    "onOtherPlan must be 'begin anew' or 'throw'.",
  )
  checkOption(['throw', 'allow', 'deny'].includes(onError), "onError must be 'throw', 'allow' or 'deny'.")
  checkOption(
    onDegraded === undefined || (typeof onDegraded === 'function' && onError !== 'throw'),
    "onDegraded must be a function, and needs onError: 'allow' or 'deny'.",
  )
  checkOption(
    !config.blocks || !(config.dryRun || inMemoryBlock || config.lease || limiter.algorithm.numbers.block),
    'blocks has no meaning with dryRun, inMemoryBlock or lease, and a lockout can be blocked without it.',
  )
  if (config.denials !== undefined) checkDenials(config.denials, db)
  checkOption(inMemoryBlock || maxBlockedKeys === undefined, 'maxBlockedKeys needs inMemoryBlock: true.')
  checkOption(
    maxBlockedKeys === undefined || isFrom1To(MAX_KEYS, maxBlockedKeys),
    `maxBlockedKeys must be a whole number from 1 to ${MAX_KEYS}.`,
  )
}

/** @throws RatelimitError `INVALID_OPTION`, `INVALID_DURATION` */
function checkDenials(denials: DenialOptions, db: RatelimitConfig['db']): void {
  checkOptions(denials, DENIAL_NAMES, 'denials')
  const { every = MAX_EVERY_MS, top = 1 } = denials
  const everyMs = parseDuration(every, 'denials.every')
  checkOption(everyMs <= MAX_EVERY_MS, 'denials.every must be at most an hour.')
  checkOption(isFrom1To(MAX_TOP, top), `denials.top must be a whole number from 1 to ${MAX_TOP}.`)
  checkOption(
    !isTransaction(db),
    'denials needs a db that is not a transaction: denials are written after it. Give calls the tx.',
  )
}

/** Whether it is a share, `{ used }` or `{ left }`. */
function isThreshold(value: unknown): boolean {
  const isObject = typeof value === 'object' && value !== null
  const [[name, amount] = [], ...others] = isObject ? Object.entries(value) : [['used', value]]
  if (others.length > 0 || !Number.isFinite(amount)) return false
  return name === 'left' ? amount >= 0 : name === 'used' && amount > 0
}

function isSecret(value: unknown): boolean {
  return typeof value === 'string' && value.length >= MIN_SECRET
}

function isFrom1To(max: number, value: number): boolean {
  return Number.isSafeInteger(value) && value > 0 && value <= max
}
