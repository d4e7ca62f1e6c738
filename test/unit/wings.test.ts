import { readFile } from 'node:fs/promises'
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

/** Words of wings. `prefetched` is a word of every answer. */
const OF_WINGS = /^(credits?|grants?|lockouts?|prefetch|semaphores?)$/i

/** The columns of all rows, and the entries that a ledger gets, are those of every limiter. */
const OF_ALL = ['src/kernel/limits/rows.ts', 'src/kernel/store/entry.ts']

test('no name in the kernel is a word of a wing', async () => {
  const found: string[] = []
  for (const file of (await sourceImports()).keys()) {
    if (!file.startsWith('src/kernel/') || OF_ALL.includes(file)) continue
    const text = await readFile(file, 'utf8')
    const code = text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*|(['"`])(?:\\.|(?!\1)[^\\])*\1/g, '')
    for (const [name] of code.matchAll(/[a-z_$][\w$]*/gi)) {
      const words = name.split(/(?<=[a-z])(?=[A-Z])|_/)
      if (words.some((word) => OF_WINGS.test(word))) found.push(`${file}: ${name}`)
    }
  }
  expect(found).toEqual([])
})
