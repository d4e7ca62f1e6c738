import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { defineConfig } from 'rolldown'

const { bin, exports } = JSON.parse(readFileSync('package.json', 'utf8'))

const entries = inputOf(exports)

/** The source of each file that package.json names, by the name that it is built under. */
function inputOf(targets) {
  const built = JSON.stringify(targets).matchAll(/"\.\/dist\/((?:src|schema)\/[\w/.-]+)\.js"/g)
  return Object.fromEntries([...built].map(([, name]) => [name, `${name}.ts`]))
}

/**
 * Few files load quickly. So what an entry needs from the start is one file, and the next needs that and more.
 * What `Ratelimit` needs is apart from the other exports, because a bundler drops a file rather than its parts.
 * It loads `hidden` when row level security is on, without the other exports that need that too.
 */
const LAYERS = [
  ['schema', 'schema/index.ts'],
  ['core', 'src/ratelimit.ts', 'src/limit-all.ts'],
  ['hidden', 'src/kernel/tables/hidden-rows.ts'],
  ['tables', 'src/index.ts'],
].map(([layer, ...needed], place) => ({
  name: (id, context) =>
    needed.some((entry) => reachedFrom(resolve(entry), context).has(id)) ? layer : null,
  debugName: layer,
  priority: 10 - place,
}))

function reachedFrom(id, context, reached = new Set()) {
  if (reached.has(id)) return reached
  reached.add(id)
  for (const imported of context.getModuleInfo(id)?.importedIds ?? []) reachedFrom(imported, context, reached)
  return reached
}

const shared = { sourcemap: true, comments: { jsdoc: false }, chunkFileNames: 'chunks/[name].js' }

/** Loading its own file would take a third of an import. */
const SMALL = ['@lukeed/ms']

/** temporal-polyfill has no CommonJS, which Jest and others need. */
const ONLY_ESM = ['temporal-polyfill', 'temporal-utils']

/** Whether a package stays outside of the build. */
function isExternal(id, builtIn) {
  return /^[^./]/.test(id) && !builtIn.some((name) => id === name || id.startsWith(`${name}/`))
}

/** The licences of what is built in. */
function licencesOf(builtIn) {
  return {
    name: 'licences',
    generateBundle() {
      for (const name of builtIn) {
        const file = readdirSync(`node_modules/${name}`).find((each) => /^licen[cs]e/i.test(each))
        const source = readFileSync(`node_modules/${name}/${file}`)
        this.emitFile({ type: 'asset', fileName: `LICENSE.${name.replace('/', '.')}`, source })
      }
    },
  }
}

/** Tells Node that what is below is CommonJS. */
const commonJs = {
  name: 'commonjs',
  generateBundle() {
    const source = `${JSON.stringify({ type: 'commonjs', sideEffects: false })}\n`
    this.emitFile({ type: 'asset', fileName: 'package.json', source })
  },
}

/** tsc leaves the extensions of the sources in declarations, which not every tool can follow. */
const declarations = {
  name: 'declarations',
  writeBundle({ dir }) {
    for (const name of readdirSync(dir, { recursive: true })) {
      if (!name.endsWith('.d.ts')) continue
      const text = readFileSync(join(dir, name), 'utf8')
      writeFileSync(
        join(dir, name),
        text.replaceAll(/((?:from |import\()['"]\.[^'"]+)\.ts(?=['"])/g, '$1.js'),
      )
    }
  },
}

export default defineConfig([
  {
    input: { ...entries, ...inputOf(bin) },
    platform: 'neutral',
    external: (id) => isExternal(id, SMALL),
    plugins: [declarations, licencesOf(SMALL)],
    output: { ...shared, dir: 'dist', format: 'esm', codeSplitting: { groups: LAYERS } },
  },
  {
    input: entries,
    platform: 'node',
    external: (id) => isExternal(id, [...SMALL, ...ONLY_ESM]),
    plugins: [commonJs, licencesOf([...SMALL, ...ONLY_ESM])],
    output: {
      ...shared,
      dir: 'dist/cjs',
      format: 'cjs',
      exports: 'named',
      codeSplitting: { groups: LAYERS },
    },
  },
])
