import { Child, scriptNextTo } from '../child.ts'
import { type Load, withDatabase } from './load.ts'
import type { MemoryJob } from './memory-child.ts'

export const LEFT_MB = 'left in memory, MB'

/** The memory that remains in a process after it checked many distinct keys once each. */
export const memory: Load = {
  name: 'memory',
  title: 'memory of distinct keys',
  run: (bench) =>
    withDatabase(bench, async (_connections, url) => {
      const keys = bench.settings.distinctKeys
      bench.progress.expect(1)
      bench.progress.turn(`${keys.toLocaleString('en')} keys`)
      const child = new Child(scriptNextTo(import.meta.url, 'memory-child'), ['--expose-gc'])
      try {
        const bytes = await child.ask<number>({ url, keys } satisfies MemoryJob)
        return { measured: [], facts: { keys, [LEFT_MB]: bytes / 1024 ** 2 } }
      } finally {
        child.end()
      }
    }),
}
