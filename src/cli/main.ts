#!/usr/bin/env node
import { cli } from './cli.ts'
import { screenOf } from './top/screen.ts'

const { log, error } = console
cli(process.argv.slice(2), { log, error, screen: screenOf() }).then((code) => {
  process.exitCode = code
})
