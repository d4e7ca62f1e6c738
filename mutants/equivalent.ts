import type { Mutant } from './mutants.ts'

/** A mutant that no caller can tell from the source. */
interface Equivalent {
  readonly file: string
  /** The names around it. */
  readonly where: string
  readonly kinds: readonly string[]
  readonly reason: string
}

const EQUIVALENT: readonly Equivalent[] = [
  {
    file: 'src/kernel/limits/limiter.ts',
    where: 'latestEndedStart',
    kinds: ['- to +'],
    reason:
      'Rows of windows that have not ended are read too, and left out afterwards. It is work for nothing.',
  },
  {
    file: 'src/calendar/periods.ts',
    where: 'readPeriods',
    kinds: ['> to >='],
    reason: 'If it goes back one period too many, the next line goes forward again.',
  },
  {
    file: 'src/calendar/periods.ts',
    where: 'isTimeZone',
    kinds: ['number'],
    reason: 'A zone has a local time at any moment.',
  },
  {
    file: 'src/kernel/limits/sliding-window.ts',
    where: 'algorithm.numbers.guess.ends',
    kinds: ['>= to >'],
    reason: 'The search finds the time from another guess too.',
  },
  {
    file: 'src/kernel/limits/token-bucket.ts',
    where: 'algorithm.numbers.guess',
    kinds: ['+ to -', 'ceil to floor'],
    reason: 'The search finds the time from another guess too.',
  },
  {
    file: 'src/kernel/limits/token-bucket.ts',
    where: 'algorithm.numbers.guess.missingMs',
    kinds: ['- to +', '- to + #2'],
    reason: 'The search finds the time from another guess too.',
  },
  {
    file: 'src/kernel/answers/outcome.ts',
    where: 'paymentOf.before',
    kinds: ['? first only', '> to >='],
    reason: 'What was used before a call that reserves nothing is worked out, and never asked for.',
  },
  {
    file: 'src/kernel/engine/checker.ts',
    where: 'unlimitedOutcome.decision.granted',
    kinds: ['number'],
    reason: 'Without a limit nothing is counted, whatever was granted.',
  },
  {
    file: 'src/http/client-key.ts',
    where: 'clientKey.forwarded',
    kinds: ['> to >='],
    reason: 'Without trusted hops only the last entry is believed, which is the address of the connection.',
  },
  {
    file: 'src/estimates/settlement.ts',
    where: 'differenceOf',
    kinds: ['< to <='],
    reason: 'A difference of 0 is 0 either way.',
  },
  {
    file: 'src/kernel/queue/coalescer.ts',
    where: 'removeCancelled',
    kinds: ['if never'],
    reason: 'Nothing is found to remove. The return spares the search.',
  },
  {
    file: 'src/kernel/queue/decide.ts',
    where: 'AloneDecider.#fulfilAll',
    kinds: ['> to >='],
    reason: 'A statement for no groups fails before it is sent, and there is nobody to tell.',
  },
  {
    file: 'src/kernel/queue/decide.ts',
    where: 'AloneDecider.decideTogether.sorted',
    kinds: ['? first only', '? second only', '> to >='],
    reason:
      'A take skips rows that are locked and a look locks none, so neither waits whatever the order is. To sort one group changes nothing.',
  },
  {
    file: 'src/kernel/lists/add-up.ts',
    where: 'rowOfCharges',
    kinds: ['? first only', '> to >='],
    reason: 'To combine one charge with no other changes nothing. It takes time.',
  },
  {
    file: 'src/kernel/sql/make.ts',
    where: 'makeStatement.guarding',
    kinds: ['&& left only'],
    reason: 'A guard that does not fit has the statement run again. Waiting ones go without to save that.',
  },
  {
    file: 'src/kernel/sql/guard.ts',
    where: 'transactionSettings',
    kinds: ['if never'],
    reason: 'A select of no columns has one row, and to join it changes nothing. It is work for nothing.',
  },
  {
    file: 'src/kernel/sql/take.ts',
    where: 'takeManyStatement.query',
    kinds: ['? second only', 'number', 'sql no where'],
    reason: 'The update has the same guard, so nothing is written. The row is locked a moment longer.',
  },
]

export function isEquivalent(mutant: Mutant): boolean {
  return EQUIVALENT.some((each) => each.kinds.some((kind) => isLike(mutant, each, kind)))
}

/** What is listed and is made no more. */
export function staleIn(mutants: readonly Mutant[]): readonly string[] {
  return EQUIVALENT.flatMap((each) =>
    each.kinds
      .filter((kind) => !mutants.some((mutant) => isLike(mutant, each, kind)))
      .map((kind) => `${each.file} ${each.where}, ${kind}`),
  )
}

function isLike(mutant: Mutant, { file, where }: Equivalent, kind: string): boolean {
  return mutant.file === file && mutant.where === where && mutant.kind === kind
}
