import { CONFIG_NAMES, type RatelimitConfig } from './config.ts'
import { checkDatabase } from './database/given.ts'
import { checkOptions, checkSwitch } from './options.ts'
import { checkLimiter, checkOption, checkRows } from './validate.ts'

/** More would take every connection that a server has by default. */
const MAX_CONNECTIONS = 100

/** A denial takes about half a kilobyte, so more would be gigabytes. */
const MAX_BLOCKED_KEYS = 10_000_000

/** In characters. Shorter secrets can be found by trying. */
const MIN_SECRET = 16

/** Options that are on or off, besides `durable`. */
const SWITCHES: readonly (keyof RatelimitConfig)[] = [
  'synchronousCommit',
  'inMemoryBlock',
  'keepEnded',
  'coalesce',
  'dryRun',
  'autoMigrate',
  'preparedStatements',
]

/** @throws RatelimitError `INVALID_PREFIX`, `INVALID_OPTION`, `INVALID_DURATION` */
export function checkConfig(config: RatelimitConfig): void {
  checkOptions(config, CONFIG_NAMES)
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
  checkLimiter(limiter)
  for (const name of SWITCHES) checkSwitch(name, config[name])
  checkOption(
    Array.isArray(thresholds) && thresholds.every((share) => Number.isFinite(share) && share > 0),
    'thresholds must be shares of the limit, above 0.',
  )
  checkOption(
    Number.isFinite(cleanupProbability) && cleanupProbability >= 0 && cleanupProbability <= 1,
    'cleanupProbability must lie from 0 to 1.',
  )
  checkOption(
    !keepEnded || cleanupProbability === 0,
    'With keepEnded: true calls sweep nothing, so cleanupProbability can only be 0.',
  )
  checkOption(
    isFrom1To(MAX_CONNECTIONS, connections),
    `connections must be a whole number from 1 to ${MAX_CONNECTIONS}.`,
  )
  checkOption(
    coalesce !== false || config.connections === undefined,
    'connections means nothing with coalesce: false.',
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
  checkOption(inMemoryBlock || maxBlockedKeys === undefined, 'maxBlockedKeys needs inMemoryBlock: true.')
  checkOption(
    maxBlockedKeys === undefined || isFrom1To(MAX_BLOCKED_KEYS, maxBlockedKeys),
    `maxBlockedKeys must be a whole number from 1 to ${MAX_BLOCKED_KEYS}.`,
  )
}

function isSecret(value: unknown): boolean {
  return typeof value === 'string' && value.length >= MIN_SECRET
}

function isFrom1To(max: number, value: number): boolean {
  return Number.isSafeInteger(value) && value > 0 && value <= max
}
