import { expect, test } from 'vitest'
import { drawImports } from './imports.ts'

test('docs/imports.svg shows the imports as they are: `npm run imports` draws it anew', async () => {
  await expect(await drawImports()).toMatchFileSnapshot('../../docs/imports.svg')
})
