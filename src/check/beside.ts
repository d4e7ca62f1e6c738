import { Checker } from './checker.ts'
import type { CheckerConfig } from './checker-config.ts'

// Rows that a limiter has in addition to those of its keys: in the same table, under a prefix of their own.

/** Sweeps such rows of a limiter whose own rows are not swept. */
const CLEANUP_PROBABILITY = 0.1

/** What is special about the rows. Default: the limiter of the owner. */
interface Beside extends Partial<Pick<CheckerConfig, 'limiter'>> {
  readonly prefix: string
  readonly isUsuallyNew?: boolean
  readonly comesLast?: boolean
  /** Default: `true`. */
  readonly isSwept?: boolean
}

/** The checker of such rows of the owner. Nothing is published about them. */
export function checkerBeside(
  { config }: Checker,
  { limiter = config.limiter, isSwept = true, ...beside }: Beside,
): Checker {
  const probability = config.keepEnded ? CLEANUP_PROBABILITY : config.cleanupProbability
  return new Checker({
    ...config,
    limiter,
    namespace: { ...beside, clock: config.namespace.clock },
    reporting: { thresholds: [], dryRun: false },
    cleanupProbability: isSwept ? probability : 0,
    keepEnded: false,
    maxBlockedKeys: undefined,
    denials: undefined,
    leases: undefined,
    blocks: false,
  })
}
