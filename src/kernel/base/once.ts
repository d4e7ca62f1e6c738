/**
 * Loads rarely used code on first use and keeps it, because even the `import()` of a loaded module costs as
 * much as a check. Calls that come before the code is loaded each wait for an `import()` of their own, because
 * in Workers a promise hangs if another request resolves it.
 */
export function onFirstUse<T>(load: () => Promise<T>): () => T | Promise<T> {
  let loaded: T | undefined
  return () =>
    loaded ??
    load().then((module) => {
      loaded = module
      return module
    })
}

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
