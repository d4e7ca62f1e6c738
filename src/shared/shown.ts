import type { Usage } from '../kernel/answers/results.ts'
import { HANDLE } from '../kernel/base/handle.ts'
import type { Database } from '../kernel/database/database.ts'
import type { Checker, LimiterCall } from '../kernel/engine/checker.ts'
import type { Limiter } from '../kernel/limits/algorithm.ts'

// What an object shows to operators. The page for them knows the rows of a limiter. An object with other rows,
// such as slots or grants, says here what they are, so that the page needs none of the wings.

/** A key, and how much of its limit is used. */
export interface ShownKey {
  /** As it is stored. */
  readonly key: string
  readonly used: number
  /** Undefined if the row is of another plan, whose limit is not known. */
  readonly limit?: number | undefined
  readonly left?: number | undefined
  /** Unix milliseconds at which nothing is used any more; `Infinity` if never. */
  readonly reset?: number | undefined
  /** Unix milliseconds. Only while the key is blocked. */
  readonly blockedUntil?: number | undefined
}

/** Which keys to show, those nearest to their limit first. */
export interface KeysAsked {
  /** Only keys that have this part. Empty for all. */
  readonly part: string
  readonly offset: number
  readonly size: number
  /** Unix milliseconds. */
  readonly now: number
}

/** How many of the keys to list that have used most. */
export interface MostUsedAsked {
  readonly db: Database
  readonly top: number
  /** Unix milliseconds. */
  readonly now: number
}

/** Keys, and how many there are. */
export interface ShownKeys {
  readonly keys: readonly ShownKey[]
  /** How many have used something. */
  readonly total: number
  /** How many of them have nothing left. */
  readonly full: number
  /** What was read, in words, if there are more rows. */
  readonly cut?: string | undefined
}

/** Something that a key holds for a time: a slot, a grant, a reservation. */
export interface Held {
  /** As it is stored. */
  readonly key: string
  /** What tells it from others of the key. */
  readonly name: string
  /** What else there is to know of it. */
  readonly about?: string | undefined
  readonly amount?: number | undefined
  /** Unix milliseconds. */
  readonly since?: number | undefined
  /** Unix milliseconds; `Infinity` for never. */
  readonly until?: number | undefined
}

/** What keys hold for a time. */
export interface Holding {
  /** A word for addresses and forms. */
  readonly name: string
  /** What they are: `Slots in use`. */
  readonly title: string
  /** What the columns of `name` and `amount` are. Undefined for a column that is not there. */
  readonly columns: readonly [name: string | undefined, amount: string | undefined]
  /** Lists at most `size`, of one key or of all, those that end first before the others. */
  list(asked: { readonly key?: string; readonly size: number; readonly now: number }): Promise<Held[]>
}

/** A field of a form. */
export interface Field {
  readonly name: string
  readonly label: string
  /** A whole number above 0, one that may be 0, or one of these values with their names. */
  readonly of: 'count' | 'cost' | readonly (readonly [value: string, name: string])[]
}

/** The values of a form. `once` is different for each form that was shown. */
export type FieldValues = Readonly<Record<string, string>> & { readonly once: string }

/** What an act has done. */
export interface Done {
  /** What has changed, in words. The same if a form is sent again. Undefined if nothing has changed. */
  readonly change?: string
  /** What there is now, or why nothing has changed. */
  readonly now?: string
}

/** A change that a viewer can make to a key. */
export type DashboardWrite = 'reset' | 'grant' | 'block' | 'settle'

/** What can be done with a key. */
export interface Act {
  readonly name: string
  /** What a viewer must be allowed to do. */
  readonly needs: DashboardWrite
  /** On its button: `Grant`. */
  readonly label: string
  /** What it would do, in words. */
  readonly about: string
  readonly fields: readonly Field[]
  /** Whether it means something for the key as it is now. Default: always. */
  isFor?(shown: ShownKey | undefined): boolean
  /** The holding of which one is its object, by the name in `held`. */
  readonly of?: string
  /**
   * Does it on a stored key. The values have been checked.
   *
   * @throws RatelimitError
   */
  run(key: string, values: FieldValues): Promise<Done>
}

/** What an object shows in place of the rows of its limiter, or next to them. */
export interface ShownParts {
  readonly rule?: string
  keys?(asked: KeysAsked): Promise<ShownKeys>
  /** Undefined if the key has no row. */
  look?(key: string, now: number): Promise<ShownKey | undefined>
  /** The usage of the keys that have used most. */
  mostUsed?(asked: MostUsedAsked): Promise<(Usage & { readonly key: string })[]>
  readonly holdings?: readonly Holding[]
  readonly acts?: readonly Act[]
}

/** What an object shows. */
export interface Shown {
  readonly checker: Checker
  /** Loads the rest, so that applications without the page do not. */
  load(): Promise<ShownParts>
}

/** What a limit lets people do with the keys of a limiter, in addition to what they can do with every limit. */
export type LimitActs = (
  checker: Checker,
  callOn: (key: string) => Promise<LimiterCall>,
) => Promise<readonly Act[]>

const ACTS = Symbol.for(`${HANDLE.description} acts`)

/** Lets the page reach what can be done with the keys of a limit. */
export function withActs<L extends Limiter>(limiter: L, acts: LimitActs): L {
  return Object.defineProperty(limiter, ACTS, { value: acts })
}

/** What can be done with the keys of the limit. Undefined if that is nothing of its own. */
export function actsIn(limiter: Limiter | undefined): LimitActs | undefined {
  return Object(limiter)[ACTS]
}

const SHOWN = Symbol.for(`${HANDLE.description} shown`)

/** Lets the page reach what an object shows. */
export function show(object: object, shown: Shown): void {
  Object.defineProperty(object, SHOWN, { value: shown })
}

/** What the object shows. Undefined if it says nothing. */
export function shownIn(object: unknown): Shown | undefined {
  return Object(object)[SHOWN]
}
