import { expect, inject, test } from 'vitest'
import { runScript } from './kit.ts'

const tarball = inject('tarball')

test('publint finds nothing', async () => {
  expect(await runScript('publint/src/cli.js', ['run', tarball, '--strict'])).toContain('All good!')
})

test('its types are right in every resolution', async () => {
  const said = await runScript('@arethetypeswrong/cli/dist/index.js', [tarball, '--format', 'ascii'])
  expect(said).toContain('No problems found')
})
