export interface Span {
  readonly start: number
  readonly end: number
}

/** A part of a file, and what stands in its place. */
export interface Change extends Span {
  readonly text: string
}

export const swaps = (table: Readonly<Record<string, string>>): ReadonlyMap<string, string> =>
  new Map(Object.entries(table))

/** Another sum, and a boundary that is moved: the same in TypeScript and in SQL. */
const MOVED = swaps({
  ...{ '+': '-', '-': '+', '*': '/', '/': '*', '%': '*', '<': '<=', '<=': '<', '>': '>=', '>=': '>' },
})

const OPPOSITES = swaps({
  ...{ '<': '>=', '<=': '>', '>': '<=', '>=': '<', '===': '!==', '!==': '===', '=': '<>' },
})

/**
 * Other operators for an operator. A comparison in a condition is not turned around: the condition is made
 * true and false, or loses it.
 */
export function otherOperators(operator: string, at: Span, isInCondition: boolean): readonly Change[] {
  const others = [MOVED.get(operator), isInCondition ? undefined : OPPOSITES.get(operator)]
  return others.flatMap((other) => (other === undefined ? [] : [change(at, other)]))
}

export function change({ start, end }: Span, text: string): Change {
  return { start, end, text }
}

/** Twice the number: a test need not see that a bound is one more. A tolerance is taken away. */
export function doubled(value: number): string {
  return value > 0 && value < 0.001 ? '0' : String(value * 2 || 1)
}

/** A list without each of its parts in turn. */
export function withoutOne(list: readonly (Span | null | undefined)[]): readonly Change[] {
  return list.flatMap((each, i) => {
    if (!each) return []
    const [before, after] = [list[i - 1], list[i + 1]]
    const start = after ? each.start : (before?.end ?? each.start)
    return [change({ start, end: after?.start ?? each.end }, '')]
  })
}
