import { RatelimitError } from '../errors.ts'

/** Throws for a value that the option cannot have. Untyped callers may give anything. */
type OptionCheck = (value: unknown, name: string) => void

/**
 * The names of an interface's options, with their checks; true for an option that is checked elsewhere. The
 * compiler refuses a list with a missing or an unknown name, so that a new option cannot be forgotten.
 */
export type NamesOf<Options> = Readonly<Record<NameOf<Options>, OptionCheck | true>>

export type OptionNames = Readonly<Record<string, OptionCheck | true>>

/** The names of options, without those of type `never`, which the interface forbids. */
export type NameOf<Options> = Options extends unknown
  ? {
      [Name in keyof Options]-?: [Exclude<Options[Name], undefined>] extends [never] ? never : Name
    }[keyof Options]
  : never

/**
 * Refuses options that are not an object, unknown names, and values that fail the check. Untyped callers may
 * give a rate in place of options, which would be ignored, or null, which would end in a TypeError. An unknown
 * name would be ignored too: with `trx` in place of `tx`, a call would be charged outside of the transaction.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkOptions(
  options: unknown,
  names: OptionNames,
  subject = 'Options',
): asserts options is object {
  if (typeof options !== 'object' || options === null) {
    throw new RatelimitError('INVALID_OPTION', `${subject} must be an object.`)
  }
  // This runs for every call, so it creates no objects.
  for (const name in options) {
    const check = Object.hasOwn(names, name) && names[name]
    if (!check) throw unknownOption(name, Object.keys(names))
    const value: unknown = options[name as keyof typeof options]
    if (check !== true && value !== undefined) check(value, name)
  }
}

function unknownOption(name: string, names: readonly string[]): RatelimitError {
  const near = names.filter((other) => isMisspelling(name, other))
  const hint =
    near.length > 0 ? `Did you mean ${near.join(' or ')}?` : `The options are: ${names.join(', ') || 'none'}.`
  return new RatelimitError('INVALID_OPTION', `There is no option ${name}. ${hint}`)
}

/** Whether the names differ by at most a third of the letters, or by one letter. */
function isMisspelling(one: string, other: string): boolean {
  const most = Math.max(1, Math.floor(one.length / 3))
  if (Math.abs(one.length - other.length) > most) return false
  return changesBetween(one.toLowerCase(), other.toLowerCase()) <= most
}

/** The Levenshtein distance: how many letters have to be added, removed or replaced. */
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
 * Refuses values other than true and false. The text `'false'` of an environment variable would count as true.
 *
 * @throws RatelimitError `INVALID_OPTION`
 */
export function checkSwitch(value: unknown, name: string): void {
  if (value !== undefined && typeof value !== 'boolean') {
    throw new RatelimitError('INVALID_OPTION', `${name} must be true or false.`)
  }
}
