import { expect, onTestFinished, test, vi } from 'vitest'
import { screenOf } from '../../../src/cli/top/screen.ts'

const { stdout } = process

test('a line that is as wide as the terminal keeps its last column', () => {
  const before = { isTTY: stdout.isTTY, columns: stdout.columns }
  Object.assign(stdout, { isTTY: true, columns: 10 })
  const write = vi.spyOn(stdout, 'write').mockReturnValue(true)
  onTestFinished(() => {
    write.mockRestore()
    Object.assign(stdout, before)
  })
  screenOf()?.draw([{ text: '0123456789' }])
  // In xterm the cursor is still on the last column, so what comes after the text would erase it.
  expect(write.mock.calls.join('')).toMatch(/0123456789$/)
})
