import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'

/**
 * The folders and files of the package from the ground up: each imports from its own floor or from one below.
 */
const FLOORS: readonly (readonly string[])[] = [
  [
    'schema',
    'src/errors.ts',
    'src/warn.ts',
    'src/options.ts',
    'src/on-first-use.ts',
    'src/duration.ts',
    'src/diagnostics.ts',
    'src/group-by.ts',
  ],
  ['src/database'],
  ['src/algorithms'],
  ['src/statements'],
  ['src/runtime'],
  ['src/config.ts', 'src/validate.ts', 'src/validate-config.ts'],
  ['src/check'],
  ['src/several', 'src/usage'],
  ['src/reservations'],
  ['src/ratelimit.ts'],
  ['src/index.ts', 'src/calendar.ts', 'src/kysely.ts', 'src/otel.ts'],
  ['src/http', 'src/cli'],
]

function floorOf(file: string): number {
  return FLOORS.findIndex((floor) => floor.some((place) => file === place || file.startsWith(`${place}/`)))
}

/** What each file imports, types included. */
async function imports(): Promise<Map<string, readonly string[]>> {
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

test('every file stands on a floor', async () => {
  for (const file of (await imports()).keys()) expect([file, floorOf(file)]).not.toContain(-1)
})

test('no file imports from a floor above its own', async () => {
  const upwards = [...(await imports())].flatMap(([file, targets]) =>
    targets.filter((target) => floorOf(target) > floorOf(file)).map((target) => `${file} -> ${target}`),
  )
  expect(upwards).toEqual([])
})

test('no circle of imports, types included', async () => {
  const graph = await imports()
  const circles: string[] = []
  const done = new Set<string>()
  const follow = (file: string, path: readonly string[]) => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' -> '))
    else if (!done.has(file)) {
      for (const target of graph.get(file) ?? []) follow(target, [...path, file])
      done.add(file)
    }
  }
  for (const file of graph.keys()) follow(file, [])
  expect(circles).toEqual([])
})
