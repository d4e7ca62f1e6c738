/**
 * Loads rarely used code on its first use, and keeps it: even an `import()` of what is there costs as much as
 * a check. Each call of before waits for an `import()` of its own, because in Workers a promise hangs if
 * another request resolves it.
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
