import { channel } from 'node:diagnostics_channel'
import { afterAll } from 'vitest'
import type { DecisionMessage, ErrorMessage } from '../../src/index.ts'
import { happened, tell } from './happened.ts'

// Counts the answers of every check of a test file, and hands them to the reporter, with what else was counted.

channel('drizzle-ratelimit:decision').subscribe((message) => {
  tell('checks', (message as DecisionMessage).success ? 'allowed' : 'denied')
})
channel('drizzle-ratelimit:error').subscribe((message) => {
  tell('checks', (message as ErrorMessage).error.code)
})
// biome-ignore lint/correctness/noEmptyPattern: Vitest wants a pattern of fixtures here.
afterAll(({}, file) => {
  file.meta.happened = happened
})
