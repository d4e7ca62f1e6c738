// Before each file of tests, where it is found out which places of src/ it reaches.
import { afterAll } from 'vitest'

if (process.env['MUTANTS_COVER']) {
  const mutantsReached = new Set<string>()
  Object.assign(globalThis, { mutantsReached })
  // biome-ignore lint/correctness/noEmptyPattern: Vitest refuses anything but a pattern.
  afterAll(({}, { file }) => void Object.assign(file.meta, { reached: [...mutantsReached] }))
}
