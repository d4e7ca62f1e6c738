import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'

/** What each file of `src/` and `schema/` imports from them, types included. */
export async function sourceImports(): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, readonly string[]>()
  for (const folder of ['src', 'schema']) {
    for (const name of await readdir(folder, { recursive: true })) {
      if (!name.endsWith('.ts')) continue
      const file = join(folder, name)
      const text = await readFile(file, 'utf8')
      const targets = [...text.matchAll(/(?:^(?:import|export|\}).* from |import\()'(\.[^']+)'/gm)]
      found.set(
        file,
        targets.map(([, path = '']) => normalize(join(dirname(file), path))),
      )
    }
  }
  return found
}
