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
