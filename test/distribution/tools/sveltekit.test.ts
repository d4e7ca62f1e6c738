import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { Server, SSRManifest } from '@sveltejs/kit'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { statusesOf } from '../../http/routes/serve.ts'
import { ENTRIES } from '../../support/entries.ts'

// The hook of docs/frameworks.md in an application that SvelteKit builds and serves.

const CONFIG = `
  import { sveltekit } from '@sveltejs/kit/vite'
  const sources = ${JSON.stringify(Object.fromEntries([...ENTRIES].map(([entry, file]) => [entry, resolve(file)])))}
  const alias = Object.entries(sources).map(([entry, replacement]) => ({ find: new RegExp('^' + entry + '$'), replacement }))
  export default { plugins: [sveltekit()], resolve: { alias } }
`

let folder: string
let server: Server
beforeAll(async () => {
  const section = (await readFile('docs/frameworks.md', 'utf8')).split('\n## SvelteKit\n')[1] ?? ''
  const [, hook = ''] = /^```ts\n([\s\S]*?)^```/m.exec(section) ?? []
  await mkdir('node_modules/.cache', { recursive: true })
  folder = await mkdtemp(resolve('node_modules/.cache/sveltekit-'))
  const files = {
    'vite.config.js': CONFIG,
    'src/app.html': '<html><head>%sveltekit.head%</head><body>%sveltekit.body%</body></html>',
    'src/app.ts': `export * from '${resolve('test/support/docs-app.ts')}'`,
    'src/hooks.server.ts': hook,
    'src/routes/+page.svelte': '<p>hello</p>',
    'src/routes/old/+server.ts': "export const GET = () => Response.redirect('https://example.com/new')",
    'src/routes/moved/+page.server.ts':
      "import { redirect } from '@sveltejs/kit'\nexport const load = () => redirect(307, '/')",
    'src/routes/moved/+page.svelte': '',
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
  const vite = resolve('node_modules/vite/bin/vite.js')
  await promisify(execFile)(process.execPath, [vite, 'build'], { cwd: folder })
  const built = join(folder, '.svelte-kit/output/server')
  const { Server: BuiltServer } = await import(join(built, 'index.js'))
  const { manifest }: { manifest: SSRManifest } = await import(join(built, 'manifest.js'))
  server = new BuiltServer(manifest)
  await server.init({ env: {} })
})
afterAll(() => rm(folder, { recursive: true }))

/** What SvelteKit answers to a client with this address. */
const visit = (path: string, address: string) =>
  server.respond(new Request(`https://example.com${path}`), { getClientAddress: () => address })

test('the hook limits pages', async () => {
  const served = await visit('/', '192.0.2.1')
  expect(await served.text()).toContain('<p>hello</p>')
  expect(served.headers.get('ratelimit')).toMatch('"api";r=4;')
  expect(await statusesOf(20, () => visit('/', '192.0.2.1'))).toEqual({ 200: 4, 429: 16 })
  const denied = await visit('/', '192.0.2.1')
  expect(Number(denied.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(await denied.json()).toMatchObject({ status: 429, 'violated-policies': ['api'] })
})

test.each([
  ['/old', 302, 'https://example.com/new', '192.0.2.2'],
  ['/moved', 307, '/', '192.0.2.3'],
])('a redirect from %s has the headers of the limit', async (path, status, location, address) => {
  const redirect = await visit(path, address)
  expect([redirect.status, redirect.headers.get('location'), redirect.headers.get('ratelimit')]).toEqual([
    status,
    location,
    expect.stringMatching('"api";r=4;'),
  ])
})
