import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { defineConfig } from 'rolldown'

const { exports } = JSON.parse(readFileSync('package.json', 'utf8'))

/** The source of each entry in package.json, by the name that it is built under. */
const input = Object.fromEntries(
  [...JSON.stringify(exports).matchAll(/"\.\/dist\/((?:src|schema)\/[\w/.-]+)\.js"/g)].map(([, name]) => [
    name,
    `${name}.ts`,
  ]),
)

/** Few files load quickly. So what an entry needs from the start is one file, and the next needs that and more. */
const LAYERS = [
  ['schema', 'schema/index.ts'],
  ['core', 'src/index.ts'],
].map(([layer, entry], place) => ({
  name: (id, context) => (reachedFrom(resolve(entry), context).has(id) ? layer : null),
  debugName: layer,
  priority: 10 - place,
}))

function reachedFrom(id, context, reached = new Set()) {
  if (reached.has(id)) return reached
  reached.add(id)
  for (const imported of context.getModuleInfo(id)?.importedIds ?? []) reachedFrom(imported, context, reached)
  return reached
}

export default defineConfig({
  input,
  platform: 'neutral',
  external: /^[^./]/,
  output: {
    dir: 'dist',
    format: 'esm',
    sourcemap: true,
    comments: { jsdoc: false },
    chunkFileNames: 'chunks/[name].js',
    codeSplitting: { groups: LAYERS },
  },
})
