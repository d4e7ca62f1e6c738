/** Features that cannot be combined with others, each with its value if only that one is refused. */
export interface Refused {
  readonly these: readonly string[]
  readonly others: readonly string[]
  /** Why. What means something, but was not built, says `Not yet`. */
  readonly because: string
}

/** The feature without its value. */
export function featureOf(written: string): string {
  return written.replace(/: .*/, '')
}

const PREPAID = ['Credits', 'dated']
const WINDOWS = ['slidingWindow', 'fixedWindow', 'calendarWindow', 'lockout']

/** What cannot be combined. docs/options.md has the same table. */
export const REFUSED: readonly Refused[] = [
  { these: ['keepEnded'], others: ['cleanupProbability'], because: 'A sweep would lose periods.' },
  { these: ['coalesce: false'], others: ['connections'], because: 'Each call then takes one.' },
  {
    these: ['prefetch'],
    others: PREPAID,
    because: 'A process that crashes would lose units that were paid for.',
  },
  {
    these: ['prefetch'],
    others: ['keepEnded', 'thresholds'],
    because: 'Reports would include units that were not used yet.',
  },
  {
    these: ['prefetch'],
    others: ['lockout'],
    because: 'Units in advance would be failures that nobody made.',
  },
  { these: ['prefetch'], others: ['coalesce: false'], because: 'Calls of several requests share the units.' },
  { these: ['prefetch'], others: ['ledger'], because: 'A call that memory answers has no transaction.' },
  {
    these: ['blocks'],
    others: ['prefetch', 'inMemoryBlock'],
    because: 'A block holds at once in every process, so no memory answers before it.',
  },
  {
    these: ['blocks'],
    others: ['dryRun'],
    because: 'A dry run lets every call pass, and a block lets none.',
  },
  { these: ['blocks'], others: ['lockout'], because: '`block` works on a lockout without it.' },
  { these: PREPAID, others: ['keepEnded', 'closePeriods'], because: 'Credits have no periods.' },
  { these: PREPAID, others: ['inMemoryBlock'], because: 'Any process may grant something at any time.' },
  { these: PREPAID, others: ['limiter'], because: 'Credits have no plans.' },
  { these: ['dated'], others: ['onOtherPlan'], because: 'Grants have no plan.' },
  {
    these: ['dated'],
    others: ['citus'],
    because: 'The grants of a key are rows of their own, and would be on several servers.',
  },
  {
    these: ['schedule'],
    others: [...WINDOWS, ...PREPAID],
    because: 'A place in line is a debt that refills pay back.',
  },
  {
    these: ['schedule'],
    others: ['dryRun'],
    because: 'A call that passes without a charge has no place in line.',
  },
  {
    these: ['schedule'],
    others: ['force', 'atLeast'],
    because: 'The whole rate has one start, and may be a debt anyway.',
  },
  {
    these: ['spend'],
    others: ['dryRun'],
    because: 'The limits deny together, so none can be tried by itself.',
  },
  { these: ['spend'], others: ['force'], because: 'It would not say which limit owes the rest.' },
  {
    these: ['blockUntilReady', 'limitAll with wait'],
    others: ['tx'],
    because: 'A wait would hold the locks of the transaction.',
  },
  {
    these: ['blockUntilReady', 'atLeast'],
    others: ['force'],
    because: 'Force takes the whole rate at once.',
  },
  {
    these: ['reserve', 'reserve with id', 'reserveAll', 'reserveAll with id'],
    others: ['force'],
    because: 'Force is for a cost that is known, and an estimate is not.',
  },
  {
    these: ['reserve with id', 'reserveAll with id'],
    others: ['once'],
    because: 'A name is charged once anyway.',
  },
  {
    these: ['changePlan'],
    others: ["onOtherPlan: 'throw'"],
    because: 'The new period would be refused as one of another plan.',
  },
  {
    these: ['changePlan', 'closePeriods'],
    others: ['tokenBucket', 'slidingWindow', 'gcra', 'lockout', 'unlimited'],
    because: 'They have no periods.',
  },
  {
    these: ['resetUsedTokens'],
    others: PREPAID,
    because: 'It would take away paid units, or give back used ones.',
  },
  {
    these: ['grant'],
    others: ['tokenBucket', 'gcra', ...WINDOWS, 'unlimited'],
    because: 'Only prepaid units are granted.',
  },
  { these: ['usage'], others: ['unlimited'], because: 'Nothing is counted.' },
]
