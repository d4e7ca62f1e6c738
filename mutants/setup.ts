// Before each file of tests, in its process.
import { Session } from 'node:inspector/promises'
import { relative } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterAll, afterEach } from 'vitest'

declare module 'vitest' {
  interface TaskMeta {
    entered?: readonly string[]
  }
}

/** A mutant may give its process no other turn. No timeout of Vitest ends it then. */
const WATCH = `
const timer = setTimeout(() => process.kill(process.pid, 'SIGKILL'), 90_000)
require('node:worker_threads').parentPort.on('message', () => timer.refresh())`

if (process.env['MUTANTS_COVER']) {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  // biome-ignore lint/correctness/noEmptyPattern: Vitest refuses anything but a pattern.
  afterAll(async ({}, { file }) => {
    const { result } = await session.post('Profiler.takePreciseCoverage')
    file.meta.entered = result.flatMap(({ url, functions }) => {
      const source = relative('', url.replace('file://', ''))
      const entered = source.startsWith('src/') ? functions.filter(({ ranges }) => ranges[0]?.count) : []
      return entered.map(({ functionName }) => `${source}:${functionName.replace(/^(get |set )?#?/, '')}`)
    })
  })
} else {
  const watch = new Worker(WATCH, { eval: true })
  watch.unref()
  afterEach(() => watch.postMessage('alive'))
}
