import { expect, test } from 'vitest'
import { ENTRIES } from '../support/entries.ts'
import { sourceImports } from '../support/source-imports.ts'
import { SHOWN_BY, wingOf } from '../support/wings.ts'

test('only a wing that shows another imports it, and the rest of the package imports none', async () => {
  const found: string[] = []
  for (const [file, targets] of await sourceImports()) {
    const own = wingOf(file)
    for (const target of targets) {
      const wing = wingOf(target)
      const isShown = own !== undefined && wing !== undefined && SHOWN_BY[wing]?.includes(own)
      if (wing !== undefined && wing !== own && !isShown) found.push(`${file} -> ${target}`)
    }
  }
  expect(found).toEqual([])
})

test('the kernel imports the kernel and the schema', async () => {
  const isBelow = (file: string) => /^(src\/kernel|schema)\//.test(file)
  const found = [...(await sourceImports())].flatMap(([file, targets]) =>
    isBelow(file) ? targets.filter((target) => !isBelow(target)) : [],
  )
  expect(found).toEqual([])
})

test('every entry of the package is the core, the schema, or a wing', () => {
  const core = ['src/index.ts', 'schema/index.ts']
  expect([...ENTRIES.values()].filter((file) => !core.includes(file) && !wingOf(file))).toEqual([])
})
