import { expect, test } from 'vitest'
import { sourceImports } from '../support/source-imports.ts'

/**
 * The folders and files of the package from the ground up: each imports from its own floor or from one below.
 * wings.test.ts forbids more: a wing imports no other.
 */
const FLOORS: readonly (readonly string[])[] = [
  [
    'schema',
    'src/kernel/base',
    'src/kernel/errors.ts',
    'src/kernel/duration.ts',
    'src/kernel/diagnostics.ts',
  ],
  ['src/kernel/database'],
  ['src/kernel/limits'],
  ['src/kernel/sql'],
  ['src/kernel/store', 'src/kernel/queue'],
  ['src/kernel/options'],
  ['src/kernel/answers'],
  ['src/kernel/engine'],
  ['src/kernel/lists'],
  ['src/tables/ddl.ts', 'src/tables/auto-migrate.ts'],
  ['src/checker-of.ts'],
  ['src/any-credits.ts', 'src/shared'],
  ['src/estimates', 'src/tables'],
  ['src/ratelimit.ts'],
  ['src/limit-all.ts'],
  [
    'src/reports',
    'src/quota',
    'src/credits',
    'src/schedule',
    'src/lockout',
    'src/denials',
    'src/ledger',
    'src/prefetch',
    'src/citus',
  ],
  ['src/index.ts', 'src/calendar', 'src/kysely.ts', 'src/otel.ts'],
  ['src/semaphore', 'src/members', 'src/http', 'src/cli', 'src/dashboard'],
]

function floorOf(file: string): number {
  return FLOORS.findIndex((floor) => floor.some((place) => file === place || file.startsWith(`${place}/`)))
}

test('every file stands on a floor', async () => {
  for (const file of (await sourceImports()).keys()) expect([file, floorOf(file)]).not.toContain(-1)
})

test('no file imports from a floor above its own', async () => {
  const upwards = [...(await sourceImports())].flatMap(([file, targets]) =>
    targets.filter((target) => floorOf(target) > floorOf(file)).map((target) => `${file} -> ${target}`),
  )
  expect(upwards).toEqual([])
})

test('no circle of imports, types included', async () => {
  const graph = await sourceImports()
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
