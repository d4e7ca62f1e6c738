// Before each file of tests: the functions that it enters are noted.
import { afterAll } from 'vitest'

declare module 'vitest' {
  interface TaskMeta {
    entered?: readonly string[]
  }
}

const entered = new Set<string>()
globalThis.entered = entered

// biome-ignore lint/correctness/noEmptyPattern: Vitest refuses anything but a pattern.
afterAll(({}, { file }) => {
  file.meta.entered = [...entered]
})
