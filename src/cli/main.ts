#!/usr/bin/env node
import { clearScreenDown, cursorTo } from 'node:readline'
import { cli } from './cli.ts'
import type { Screen } from './output.ts'

const { stdout } = process

/** The terminal, if there is one. */
function screenOf(): Screen | undefined {
  if (!stdout.isTTY) return undefined
  const stopping = new AbortController()
  let listens = false
  return {
    clear: () => {
      // Before the first time, Ctrl-C ends the process at once.
      if (!listens) process.once('SIGINT', () => stopping.abort())
      listens = true
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
