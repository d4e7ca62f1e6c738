/**
 * Does the work for one item after the other. Statements in a transaction go this way, because a connection
 * runs one at a time: node-postgres warns of a second one.
 */
export async function inTurn<T, R>(
  items: readonly T[],
  work: (item: T, place: number) => Promise<R>,
): Promise<R[]> {
  const done: R[] = []
  for (const [place, item] of items.entries()) done.push(await work(item, place))
  return done
}
