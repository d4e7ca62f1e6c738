import { ACTS, CHARGES } from './calls.ts'
import { LIMITS, NEEDS, OPTIONS, PREPAID, WORDS } from './features.ts'
import { featureOf, REFUSED } from './refused.ts'

// Which pairs of features there are, and sets of features that have all of those which are allowed.

/** Of each of these, a scenario has one at most. */
export const EACH_LIMIT: readonly string[] = [...Object.keys(LIMITS), ...Object.keys(PREPAID)]
export const EACH_CHARGE: readonly string[] = Object.keys(CHARGES)
export const EACH_ACT: readonly string[] = Object.keys(ACTS)

export const FEATURES: readonly string[] = [
  ...[EACH_LIMIT, EACH_CHARGE, EACH_ACT, Object.keys(OPTIONS), Object.keys(WORDS)].flat(),
]

type Pair = readonly [string, string]

/** Whether they cannot be in one scenario because they are of one kind. */
function areOneKind(one: string, other: string): boolean {
  return [EACH_LIMIT, EACH_CHARGE, EACH_ACT].some((kind) => kind.includes(one) && kind.includes(other))
}

function pairsOf(features: readonly string[]): Pair[] {
  return features.flatMap((one, place) => features.slice(place + 1).map((other): Pair => [one, other]))
}

function nameOf(...pair: Pair): string {
  return pair.toSorted().join(' with ')
}

/** The feature, and what it needs there. A lockout can be blocked as it is. */
export function withNeed(feature: string, others: readonly string[]): string[] {
  const need = NEEDS[feature]
  const isThere = need === undefined || (feature === 'block' && others.includes('lockout'))
  return isThere ? [feature] : [feature, ...withNeed(need, others)]
}

/** The pairs that are refused themselves, and not by what one of them needs. */
export const REFUSED_PAIRS: readonly Pair[] = REFUSED.flatMap(({ these, others }) =>
  these.flatMap((one) => others.map((other): Pair => [featureOf(one), featureOf(other)])),
)

const REFUSED_NAMES = new Set(REFUSED_PAIRS.map((pair) => nameOf(...pair)))

export function isRefused(one: string, other: string): boolean {
  const others = withNeed(other, [one])
  return withNeed(one, [other]).some((own) => others.some((each) => REFUSED_NAMES.has(nameOf(own, each))))
}

function mayJoin(feature: string, others: readonly string[]): boolean {
  return others.every((each) => each !== feature && !areOneKind(each, feature) && !isRefused(each, feature))
}

/** Whether there is a limit that has both. */
function hasLimit(pair: Pair): boolean {
  return pair.some((each) => EACH_LIMIT.includes(each)) || EACH_LIMIT.some((each) => mayJoin(each, pair))
}

/** With one of these a call is not denied, or does not show all, so it stands for its own pairs only. */
const HIDING = ['unlimited', 'spend', 'force', 'dryRun', 'prefetch']

/** The features, with a limit and a call that charges. */
export function completed(
  features: readonly string[],
  gain: (feature: string) => number = () => 0,
): string[] {
  const all = [...features]
  for (const kind of [EACH_LIMIT, EACH_CHARGE]) {
    if (all.some((each) => kind.includes(each))) continue
    const best = bestOf(kind, all, gain)
    if (best === undefined) throw new Error(`Nothing goes together with ${all}.`)
    all.push(best)
  }
  return all
}

/** What goes together with the features, hides none of them and gains most. */
function bestOf(
  from: readonly string[],
  features: readonly string[],
  gain: (feature: string) => number,
): string | undefined {
  const open = from.filter((each) => !HIDING.includes(each) && mayJoin(each, features))
  return open.toSorted((one, other) => gain(other) - gain(one))[0]
}

/** How many features a scenario has at most: with more, a failure would say little. */
const MOST = 10

/** Sets of features that have every allowed pair. Each begins with the first pair that none before it has. */
export function scenarios(): readonly (readonly string[])[] {
  const isAllowed = (pair: Pair) => !areOneKind(...pair) && !isRefused(...pair) && hasLimit(pair)
  const allowed = pairsOf(FEATURES).filter(isAllowed)
  const open = new Map(allowed.map((pair) => [nameOf(...pair), pair]))
  const made: string[][] = []
  for (let [first] = open.values(); first; [first] = open.values()) {
    const hiding = first.filter((each) => HIDING.includes(each))
    const isShown = (pair: Pair) => hiding.every((each) => pair.includes(each))
    const isNew = (pair: Pair) => isShown(pair) && open.has(nameOf(...pair))
    const gainIn = (features: readonly string[]) => (feature: string) =>
      features.filter((each) => isNew([each, feature])).length
    const features = completed(first, gainIn(first))
    while (features.length < MOST) {
      const gain = gainIn(features)
      const best = bestOf(FEATURES, features, gain)
      if (best === undefined || gain(best) === 0) break
      features.push(best)
    }
    for (const pair of pairsOf(features).filter(isShown)) open.delete(nameOf(...pair))
    made.push(features)
  }
  return made
}
