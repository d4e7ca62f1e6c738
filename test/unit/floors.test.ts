import { expect, test } from 'vitest'
import { sourceImports } from '../support/source-imports.ts'

/**
 * The folders and files of the package from the ground up: each imports from its own floor or from one below.
 * wings.test.ts forbids more: a wing imports no other.
 */
const FLOORS: readonly (readonly string[])[] = [
  ['schema', 'src/base', 'src/errors.ts', 'src/duration.ts', 'src/diagnostics.ts'],
  ['src/database'],
  ['src/tables'],
  ['src/algorithms'],
  ['src/statements'],
  ['src/runtime'],
  ['src/options'],
  ['src/answers'],
  ['src/check', 'src/leases'],
  ['src/several'],
  ['src/reservations', 'src/credits'],
  ['src/ratelimit.ts'],
  ['src/limit-all.ts'],
  ['src/reports', 'src/quota', 'src/schedule', 'src/lockout', 'src/denials', 'src/ledger'],
  ['src/index.ts', 'src/calendar.ts', 'src/kysely.ts', 'src/otel.ts'],
  ['src/semaphore', 'src/http', 'src/cli', 'src/dashboard'],
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
