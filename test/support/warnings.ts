import { afterEach, beforeEach, type Mock, vi } from 'vitest'
import { warned } from '../../src/base/warn.ts'

/**
 * What the package warns of in each test of a file. Files share a process, which warns once of each thing. So
 * each test begins as a process that has warned of nothing.
 */
export function useWarnings(): Mock<typeof console.warn> {
  const warn = vi.fn<typeof console.warn>()
  const { warn: real } = console
  beforeEach(() => {
    warned.clear()
    warn.mockClear()
    console.warn = warn
  })
  afterEach(() => {
    console.warn = real
  })
  return warn
}
