/** The values in order. Most are, and to sort those would cost a list as much as several of its other steps. */
export function sorted<T>(values: readonly T[], compare: (one: T, other: T) => number): readonly T[] {
  const isSorted = values.every((value, place) => place === 0 || compare(values[place - 1] as T, value) <= 0)
  return isSorted ? values : values.toSorted(compare)
}
