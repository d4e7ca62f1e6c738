import type { Namespace } from '../store/call.ts'
import { Checker } from './checker.ts'
import type { Parts } from './parts.ts'
import { sweepsOf } from './sweeps.ts'

// Rows that a limiter has in addition to those of its keys: in the same table, under a prefix of their own.

/** Sweeps such rows of a limiter whose own rows are not swept. */
const CLEANUP_PROBABILITY = 0.1

/** What is special about the rows. Default: the limiter of the owner. */
interface CompanionRows
  extends Pick<Namespace, 'prefix' | 'isUsuallyNew' | 'comesLast'>,
    Partial<Pick<Parts['terms'], 'limiter'>> {
  /** Default: `true`. */
  readonly isSwept?: boolean
}

/** They are only counted. */
const PLAIN = {
  ...{ reporting: { thresholds: [], dryRun: false }, keepEnded: false, graceMs: 0 },
  layers: [],
}

/** The checker of such rows of the owner. Nothing is published about them. */
export function companionChecker(
  { rows, terms, alone }: Checker,
  { limiter = terms.limiter, isSwept = true, ...companion }: CompanionRows,
): Checker {
  const own = { ...rows, namespace: { ...companion, clock: rows.namespace.clock } }
  const usual = terms.keepEnded ? CLEANUP_PROBABILITY : alone.sweeps.probability
  const sweeps = sweepsOf(own, isSwept ? usual : 0, false, alone.goOn)
  return new Checker({
    rows: own,
    terms: { ...PLAIN, limiter, hash: terms.hash },
    alone: { ...alone, sweeps, maxBlockedKeys: undefined, inAdvance: undefined },
  })
}
