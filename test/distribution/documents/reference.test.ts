import { readdir } from 'node:fs/promises'
import { beforeAll, expect, test } from 'vitest'
import { OPTIONS } from '../../../src/kernel/options/settings.ts'
import { referencePages } from '../../../tools/reference/pages.ts'

let pages: ReadonlyMap<string, string>
beforeAll(async () => {
  pages = await referencePages()
})

test('the reference says what the doc comments say: `npm run reference` writes it', async () => {
  for (const [file, text] of pages) await expect(text).toMatchFileSnapshot(`../../../docs/${file}`)
  const files = (await readdir('docs/reference')).map((name) => `reference/${name}`)
  expect(files.filter((file) => !pages.has(file))).toEqual([])
})

test('the reference has the defaults of the options', () => {
  const items = [...pages.values()].flatMap((text) => text.split(/\n\n?- |\n\n/))
  const wrong = Object.entries(OPTIONS).filter(([name, { byDefault }]) => {
    if (byDefault === undefined || typeof byDefault === 'object') return false
    const value = typeof byDefault === 'number' ? byDefault.toLocaleString('en') : `${byDefault}`
    const shown = new RegExp(`^\`${name}\\?:[\\s\\S]*Default:\\s+\`'?${value.replace(',', '_')}'?\``)
    return !items.some((item) => shown.test(item))
  })
  expect(wrong).toEqual([])
})
