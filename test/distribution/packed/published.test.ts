import { readdir, readFile, stat } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'
import { expect, inject, test } from 'vitest'
import { runScript } from './kit.ts'

const tarball = inject('tarball')
const home = join(inject('consumer'), 'node_modules/drizzle-ratelimit')

test('publint finds nothing', async () => {
  expect(await runScript('publint/src/cli.js', ['run', tarball, '--strict'])).toContain('All good!')
})

test('its types are right in every resolution', async () => {
  const said = await runScript('@arethetypeswrong/cli/dist/index.js', [tarball, '--format', 'ascii'])
  expect(said).toContain('No problems found')
})

/** What only the repository has. */
const FOR_CONTRIBUTORS = /^(CONTRIBUTING|docs\/(decisions|guarantees|evidence|performance-detail)[\w-]*)\.md$/

test('it has the files that its documents link to, but for pictures and pages for contributors', async () => {
  const files = await readdir(home, { recursive: true })
  const pages = files.filter((name) => /^(README|CONTRIBUTING|docs\/[\w/-]+)\.md$/.test(name))
  expect(pages.length).toBeGreaterThan(5)
  expect(pages.filter((page) => FOR_CONTRIBUTORS.test(page))).toEqual([])
  const dangling: string[] = []
  for (const page of pages) {
    for (const [, path = ''] of (await readFile(join(home, page), 'utf8')).matchAll(
      /(?<!!\[[^\]]*)\]\((?!https?:|#)([^)#]+)[^)]*\)/g,
    )) {
      const file = normalize(join(dirname(page), path))
      if (!files.includes(file) && !FOR_CONTRIBUTORS.test(file)) dangling.push(`${page} -> ${file}`)
    }
  }
  expect(dangling).toEqual([])
})

/** It had 1,268 files and 1.7 MB, with source maps and a declaration for each source. */
test('it has at most 250 files and 700 kB', async () => {
  const files = await readdir(home, { recursive: true, withFileTypes: true })
  expect(files.filter((file) => file.isFile()).length).toBeLessThanOrEqual(250)
  expect((await stat(tarball)).size).toBeLessThan(700_000)
})

test('it has the migrations, and no snapshots of drizzle-kit', async () => {
  const files = await readdir(join(home, 'drizzle'), { recursive: true })
  const { entries } = JSON.parse(await readFile(join(home, 'drizzle/meta/_journal.json'), 'utf8'))
  for (const { tag } of entries) expect(files).toContain(`${tag}.sql`)
  expect(files.filter((name) => name.includes('snapshot'))).toEqual([])
})
