/** Groups the elements by key. The groups have the order in which their keys first occur. */
export function groupBy<T>(all: readonly T[], keyOf: (each: T) => string | number): T[][] {
  const groups = new Map<string | number, T[]>()
  for (const each of all) {
    const key = keyOf(each)
    const group = groups.get(key)
    if (group) group.push(each)
    else groups.set(key, [each])
  }
  return [...groups.values()]
}

/** The values in order. Most are, and to sort those would cost a list as much as several of its other steps. */
export function sorted<T>(values: readonly T[], compare: (one: T, other: T) => number): readonly T[] {
  const isSorted = values.every((value, place) => place === 0 || compare(values[place - 1] as T, value) <= 0)
  return isSorted ? values : values.toSorted(compare)
}

/** Each of the few values once. */
export function eachOnce<T>(values: readonly T[]): T[] {
  return values.filter((value, place) => values.indexOf(value) === place)
}
