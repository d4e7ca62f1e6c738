/** Makes something once for each object, and keeps it as long as the object. */
export function onceFor<K extends object, T>(make: (of: K) => T): (of: K) => T {
  const made = new WeakMap<K, T>()
  return (of) => {
    let known = made.get(of)
    if (known === undefined) {
      known = make(of)
      made.set(of, known)
    }
    return known
  }
}
