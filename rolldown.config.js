import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { defineConfig } from 'rolldown'
import { dts } from 'rolldown-plugin-dts'

const { bin, exports } = JSON.parse(readFileSync('package.json', 'utf8'))

const entries = inputOf(exports)

/** The source of each file that package.json names, by the name that it is built under. */
function inputOf(targets) {
  const built = JSON.stringify(targets).matchAll(/"\.\/dist\/((?:src|schema)\/[\w/.-]+)\.js"/g)
  return Object.fromEntries([...built].map(([, name]) => [name, `${name}.ts`]))
}

const WINGS = ['credits', 'quota', 'reports', 'semaphore'].map((wing) => `src/${wing}/index.ts`)

/**
 * Few files load quickly, so a layer is one file: what its sources need from the start, but for the layers before.
 * What `Ratelimit` needs is apart from the other exports, because a bundler drops a file rather than its parts. It
 * loads `hidden` when row level security is on, without the other exports that need that too, and `seldom` and
 * `lists` with the first call that needs them.
 */
const LAYERS = [
  layer('schema', ['schema/index.ts']),
  layer('core', ['src/ratelimit.ts', 'src/limit-all.ts']),
  layer('hidden', ['src/kernel/database/hidden-rows.ts']),
  layer('tables', ['src/index.ts']),
  layer('shared', WINGS, /\/src\/(kernel|estimates|shared)\//),
  layer('seldom', [...sourcesIn('src/kernel/engine'), ...sourcesIn('src/kernel/store')]),
  layer('lists', [...sourcesIn('src/kernel/lists'), ...sourcesIn('src/estimates')]),
  layer('credits', ['src/credits/index.ts']),
  layer('dated', sourcesIn('src/credits')),
  layer('quotas', ['src/quota/index.ts', 'src/reports/index.ts']),
].map((group, place) => ({ ...group, priority: 10 - place }))

/** @param within Which of the sources that are needed belong to the layer. */
function layer(name, sources, within = /./) {
  const belongs = (id, context) =>
    within.test(id) && sources.some((source) => reachedFrom(resolve(source), context).has(id))
  return { name: (id, context) => (belongs(id, context) ? name : null), debugName: name }
}

function sourcesIn(folder) {
  return readdirSync(folder).map((name) => join(folder, name))
}

function reachedFrom(id, context, reached = new Set()) {
  if (reached.has(id)) return reached
  reached.add(id)
  for (const imported of context.getModuleInfo(id)?.importedIds ?? []) reachedFrom(imported, context, reached)
  return reached
}

const shared = { comments: { jsdoc: false }, chunkFileNames: 'chunks/[name].js' }

/** Loading its own file would take a third of an import. */
const SMALL = ['@lukeed/ms']

/** What `top` draws with. Only the command needs it, so that no installation has it as a dependency. */
const TERMINAL = [
  'ansi-escapes',
  'environment',
  'string-width',
  'get-east-asian-width',
  'strip-ansi',
  'ansi-regex',
]

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

/** What the sources refer to by themselves. The plugin drops comments at the beginning of a file. */
const LIBRARIES = '/// <reference lib="esnext.disposable" />'

/** The generator of the plugin puts some comments on the line of the member before, where no editor finds them. */
const ownLines = {
  name: 'own lines for comments',
  generateBundle(_, files) {
    for (const file of Object.values(files)) {
      if (file.type === 'chunk') file.code = file.code.replace(/; (\/\*\*.*\*\/)\n( *)/g, ';\n$2$1\n$2')
    }
  },
}

/** The declarations that tsc has made, as few files as the code. Each format needs its own. */
function declarations(dir) {
  const made = Object.entries(inputOf(exports)).map(([name, source]) => [name, declarationOf(source)])
  return {
    input: Object.fromEntries(made),
    external: (id) => isExternal(id, []),
    plugins: [dts({ dtsInput: true, tsconfig: false }), ownLines],
    experimental: { attachDebugInfo: 'none' },
    output: {
      ...{ dir, format: 'esm', banner: LIBRARIES, chunkFileNames: 'types/[name].d.ts' },
      // tsc and editors show these names.
      minifyInternalExports: false,
      codeSplitting: { groups: [{ name: 'shared', minShareCount: 2 }] },
    },
  }
}

function declarationOf(source) {
  return join('node_modules/.cache/types', source.replace(/\.ts$/, '.d.ts'))
}

export default defineConfig([
  {
    input: { ...entries, ...inputOf(bin) },
    platform: 'neutral',
    external: (id) => isExternal(id, [...SMALL, ...TERMINAL]),
    plugins: [licencesOf([...SMALL, ...TERMINAL])],
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
  declarations('dist'),
  declarations('dist/cjs'),
])
