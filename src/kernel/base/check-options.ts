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
    throw new RatelimitError('INVALID_OPTION', `${subject} must be an object. ${listOf(Object.keys(names))}`)
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
  const hint = near.length > 0 ? `Did you mean ${near.join(' or ')}?` : listOf(names)
  return new RatelimitError('INVALID_OPTION', `There is no option ${name}. ${hint}`)
}

function listOf(names: readonly string[]): string {
  return `The options are: ${names.join(', ') || 'none'}.`
}

/** Whether at most so many letters have to be added, removed or replaced: a third of the first, or one. */
function isMisspelling(one: string, other: string, most = Math.max(1, Math.floor(one.length / 3))): boolean {
  if (Math.abs(one.length - other.length) > most) return false
  if (one === '' || other === '') return true
  const [rest, others] = [one.slice(1), other.slice(1)]
  if (one[0]?.toLowerCase() === other[0]?.toLowerCase()) return isMisspelling(rest, others, most)
  const less = most - 1
  return (
    isMisspelling(rest, others, less) || isMisspelling(rest, other, less) || isMisspelling(one, others, less)
  )
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
