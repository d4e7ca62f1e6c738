import { afterEach, beforeEach, type Mock, vi } from 'vitest'
import { warned } from '../../src/kernel/base/warn.ts'

/**
 * What the package warns of in each test of a file. Files share a process, which warns once of each thing. So
 * each test begins as a process that has warned of nothing. LONG_WAIT depends on how busy the machine is and
 * has tests of its own, so it goes to the console.
 */
export function useWarnings(): Mock<typeof console.warn> {
  const warn = vi.fn<typeof console.warn>()
  const { warn: real } = console
  beforeEach(() => {
    warned.clear()
    warn.mockClear()
    console.warn = (...said: readonly unknown[]) => {
      if (String(said[0]).includes(' LONG_WAIT:')) real(...said)
      else warn(...said)
    }
  })
  afterEach(() => {
    console.warn = real
  })
  return warn
}
