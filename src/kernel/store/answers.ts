import { exactNumbers, mustHave, notAsExpected, TWO_ROWS } from '../database/rows.ts'
import type { Row } from '../database/run.ts'
import type {
  AnyAlgorithm,
  EndedPeriod,
  Numbers,
  Params,
  StateColumn,
  StoredLimiter,
} from '../limits/algorithm.ts'
import { appliesAt, periodFrom } from '../limits/limiter.ts'
import { NUMBERS } from '../sql/columns.ts'
import { ENDED, OTHER } from '../sql/levels.ts'
import type { Answers, Asked, Decision } from './call.ts'
import type { CallNumbers } from './values.ts'

// The decisions on calls, as statements have answered them.

/** @param numbers Those that were sent, of each call or of all. */
export function answersOf(
  rows: readonly Row[],
  asked: readonly Asked[],
  algorithm: AnyAlgorithm,
  numbers: CallNumbers,
): Answers {
  const answers: (Decision | undefined)[] = new Array(asked.length)
  const isAnswered: boolean[] = []
  for (const row of rows) {
    if (mustHave(row[NUMBERS]) === null) continue
    const place = row['place'] === undefined ? 0 : Number(row['place']) - 1
    if (isAnswered[place]) throw notAsExpected(TWO_ROWS)
    isAnswered[place] = true
    if (row['decided'] === false) continue
    answers[place] = decisionOf(row, mustHave(asked[place]), algorithm, numbers.at(place))
  }
  return answers
}

function decisionOf(row: Row, { request, calls }: Asked, algorithm: AnyAlgorithm, params: Params): Decision {
  const numbers = exactNumbers(row[NUMBERS])
  // Spread into the object, they would take V8 longer than all the rest of a check.
  const { now, state } = timeAndState(numbers, algorithm)
  return {
    now,
    state,
    granted: Math.max(numbers[0] ?? calls.length, 0),
    params,
    ended: endedIn(row[ENDED], request.limiter),
    isOther: row[OTHER] === true,
    isNew: row['holds'] !== undefined && row['holds'] !== true,
  }
}

/** Takes the first numbers of a decision, in the order of `decisionNumbers`. The rest stays. */
export function timeAndState(numbers: number[], { columns }: AnyAlgorithm): Pick<Decision, 'now' | 'state'> {
  const now = mustHave(numbers.shift())
  const state: Record<string, number> = {}
  for (const column of columns) state[column] = mustHave(numbers.shift())
  // An algorithm reads only its own columns.
  return { now, state: state as Numbers<StateColumn> }
}

/** Reads the period that the first granted call has ended from the statement's text. */
export function endedIn(text: unknown, limiter: StoredLimiter): EndedPeriod | undefined {
  if (typeof text !== 'string') return undefined
  const [start = Number.NaN, used = Number.NaN, reserved] = exactNumbers(text)
  // Other programs may write to the table too. A row without a count, or with a start at infinity, is no
  // period.
  if (!(Number.isFinite(start) && Number.isFinite(used))) return undefined
  return { ...periodFrom(limiter, start), used, ...(reserved === undefined ? {} : { reserved }) }
}

/** Whether the decision was made with the right calendar period. */
export function applies({ request }: Asked, { params, now }: Decision): boolean {
  return !request.limiter.periodAt || appliesAt(params, now)
}
