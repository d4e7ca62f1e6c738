#!/usr/bin/env node
import { cli } from './cli.ts'

cli(process.argv.slice(2), console).then((code) => {
  process.exitCode = code
})
