import { parseArgs } from 'node:util'
import { type Duration, parseDuration } from '../../kernel/duration.ts'
import { connect, urlIn } from '../connect.ts'
import { limitsIn } from '../limits.ts'
import { jsonOf, type Output } from '../output.ts'
import { TABLE_OPTIONS, tablesFrom } from '../tables.ts'
import type { ShownLimit } from './keys.ts'
import { showLive } from './live.ts'
import { readerOf } from './reading.ts'
import { contentOf } from './table.ts'

const TOP_OPTIONS = {
  ...TABLE_OPTIONS,
  limits: { type: 'string' },
  prefix: { type: 'string', multiple: true },
  top: { type: 'string', default: '10' },
  every: { type: 'string', default: '2s' },
  since: { type: 'string', default: '1h' },
  once: { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
} as const

/** Shows the keys that use most and are denied most, again and again in a terminal, and otherwise once. */
export async function top(args: string[], output: Output): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: TOP_OPTIONS, allowPositionals: true })
  const url = urlIn(positionals, 'top')
  const every = { text: values.every, ms: parseDuration(values.every as Duration, '--every') }
  const sinceMs = parseDuration(values.since as Duration, '--since')
  const limits = await chosenLimits(values.limits, values.prefix ?? [])

  const { db, end } = connect(url)
  try {
    const { hostname } = new URL(url)
    const source = { db, tables: tablesFrom(values), top: Number(values.top), sinceMs, host: hostname }
    const read = readerOf(limits, source)
    const { screen } = output
    if (screen && !values.once && !values.json) await showLive(screen, read, every)
    else {
      const report = await read()
      const lines = contentOf(report).map(({ text }) => text)
      output.log(values.json ? jsonOf(report) : lines.join('\n'))
    }
    return 0
  } finally {
    await end()
  }
}

/** The limits of a module, or those of the prefixes only. Without a module, only denials are known. */
async function chosenLimits(module: string | undefined, prefixes: readonly string[]): Promise<ShownLimit[]> {
  if (module === undefined) {
    if (prefixes.length > 0) return prefixes.map((prefix) => ({ prefix }))
    throw new Error('Which limits? Add --limits <module>, or --prefix <name> to see its denials only.')
  }
  const all = await limitsIn(module)
  const missing = prefixes.filter((prefix) => all.every((each) => each.prefix !== prefix))
  if (missing.length > 0) throw new Error(`The module of --limits has no limit for ${missing.join(', ')}.`)
  return prefixes.length === 0 ? all : all.filter(({ prefix }) => prefixes.includes(prefix))
}
