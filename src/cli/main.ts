#!/usr/bin/env node
import { clearScreenDown, cursorTo } from 'node:readline'
import { cli } from './cli.ts'
import type { Screen } from './output.ts'

const { stdout } = process

/** The terminal, if there is one. */
function screenOf(): Screen | undefined {
  if (!stdout.isTTY) return undefined
  const stopping = new AbortController()
  return {
    clear: () => {
      // Until now, Ctrl-C ends the process at once.
      if (process.listenerCount('SIGINT') === 0) process.once('SIGINT', () => stopping.abort())
      cursorTo(stdout, 0, 0)
      clearScreenDown(stdout)
    },
    signal: stopping.signal,
  }
}

const { log, error } = console
cli(process.argv.slice(2), { log, error, screen: screenOf() }).then((code) => {
  process.exitCode = code
})
