import { RatelimitError } from './errors.ts'

/**
 * The names of an interface's options. The compiler refuses a list that lacks one or has another, so that a new
 * option cannot be forgotten.
 */
export type NamesOf<Options> = Readonly<Record<NameOf<Options>, true>>

/** The names of some interface's options. */
export type OptionNames = Readonly<Record<string, true>>

/** Without those that the interface forbids, of type `never`. */
type NameOf<Options> = Options extends unknown
  ? {
      [Name in keyof Options]-?: [Exclude<Options[Name], undefined>] extends [never] ? never : Name
    }[keyof Options]
  : never

/**
 * Untyped callers may give a rate where options belong, which would be ignored, or null, which would end in a
 * TypeError. And an option that does not exist would be ignored: with `trx` in place of `tx`, a call would be
 * charged outside of the transaction.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkOptions(
  options: unknown,
  names: OptionNames,
  what = 'Options',
): asserts options is object {
  if (typeof options !== 'object' || options === null) {
    throw new RatelimitError('INVALID_OPTION', `${what} must be an object.`)
  }
  // Every call comes here, so nothing is made on the way. What each object inherits is not `true`.
  for (const name in options) {
    if (names[name] !== true) throw unknownOption(name, Object.keys(names))
  }
}

function unknownOption(name: string, names: readonly string[]): RatelimitError {
  const near = names.filter((other) => isNear(name, other))
  const hint =
    near.length > 0 ? `Did you mean ${near.join(' or ')}?` : `The options are: ${names.join(', ')}.`
  return new RatelimitError('INVALID_OPTION', `There is no option ${name}. ${hint}`)
}

/** Whether a third of the letters have to be changed at most, and at least one may be. */
function isNear(one: string, other: string): boolean {
  const most = Math.max(1, Math.floor(one.length / 3))
  if (Math.abs(one.length - other.length) > most) return false
  return changesBetween(one.toLowerCase(), other.toLowerCase()) <= most
}

/** How many letters have to be put in, left out or replaced: the distance of Levenshtein. */
function changesBetween(one: string, other: string): number {
  let changes = Array.from({ length: other.length + 1 }, (_, length) => length)
  for (const [place, letter] of [...one].entries()) {
    const next = [place + 1]
    for (const [at, target] of [...other].entries()) {
      const replaced = (changes[at] as number) + (letter === target ? 0 : 1)
      next.push(Math.min(replaced, (changes[at + 1] as number) + 1, (next[at] as number) + 1))
    }
    changes = next
  }
  return changes.at(-1) as number
}

/**
 * Refuses what is neither on nor off: `'false'`, as of an environment's variable, would be on.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkSwitch(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== 'boolean') {
    throw new RatelimitError('INVALID_OPTION', `${name} must be true or false.`)
  }
}
