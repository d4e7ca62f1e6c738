import { access, readdir, readFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'
import { expect, test } from 'vitest'

/** The pages, and the sources whose errors and comments name a page. */
async function texts(): Promise<Map<string, string>> {
  const folders = ['docs', 'src'].map(async (folder) =>
    (await readdir(folder, { recursive: true })).map((name) => join(folder, name)),
  )
  const files = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...(await Promise.all(folders)).flat()]
  const read = files.filter((name) => /\.(md|ts)$/.test(name))
  return new Map(await Promise.all(read.map(async (name) => [name, await readFile(name, 'utf8')] as const)))
}

/** The anchors that GitHub gives the headings of a page. */
function anchorsOf(page: string): string[] {
  const text = page.replaceAll(/^```.*?^```/gms, '')
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )
}

function isThere(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  )
}

test('each link leads to a file and a heading that exist', async () => {
  const all = await texts()
  const broken: string[] = []
  let links = 0
  for (const [from, text] of all) {
    const found = from.endsWith('.md')
      ? [...text.matchAll(/\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)/g)]
      : [...text.matchAll(/\b(docs\/[\w-]+\.md)(?:#([\w-]+))?/g)]
    for (const [, path = '', anchor] of found) {
      links++
      const file = path === '' ? from : normalize(join(from.endsWith('.md') ? dirname(from) : '.', path))
      const headings = anchorsOf(all.get(file) ?? '')
      if (!(await isThere(file)) || (anchor && !headings.includes(anchor)))
        broken.push(`${from} -> ${path}#${anchor ?? ''}`)
    }
  }
  expect(links).toBeGreaterThan(100)
  expect(broken).toEqual([])
})

test('each file that a page names exists', async () => {
  const missing: string[] = []
  let named = 0
  for (const [page, text] of await texts()) {
    if (!page.endsWith('.md') || page === 'CHANGELOG.md') continue
    for (const [, file = ''] of text.matchAll(
      /`((?:src|schema|test|tools|bench|mutants|examples)\/[\w./-]+)`/g,
    )) {
      named++
      if (!(await isThere(file))) missing.push(`${page}: ${file}`)
    }
  }
  expect(named).toBeGreaterThan(100)
  expect(missing).toEqual([])
})
