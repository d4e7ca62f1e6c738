import { build } from 'esbuild'
import { Miniflare } from 'miniflare'
import { ENTRIES } from '../../support/entries.ts'

/** A Worker in workerd, on this machine. */
export interface Worker {
  /** The answer to a request. */
  get(path: string): Promise<{ readonly status: number; readonly text: string }>
  stop(): Promise<void>
}

/** What node-postgres asks Node for, and workerd has. */
const OF_NODE = ['crypto', 'dns', 'events', 'fs', 'net', 'path', 'stream', 'string_decoder', 'tls', 'util']

/** Starts the Worker of this folder, with the package's source, as it would be deployed. */
export async function startWorker(
  compatibilityDate: string,
  bindings: Readonly<Record<string, string | Record<string, string>>>,
): Promise<Worker> {
  const {
    outputFiles: [script],
  } = await build({
    entryPoints: ['test/distribution/edge/worker.ts'],
    outfile: 'worker.js',
    ...{ bundle: true, write: false, format: 'esm', platform: 'neutral', target: 'es2022' },
    ...{ mainFields: ['module', 'main'], conditions: ['workerd', 'worker', 'browser'] },
    alias: Object.fromEntries([...ENTRIES].map(([entry, file]) => [entry, `./${file}`])),
    external: ['node:*', 'cloudflare:*', 'pg-native', ...OF_NODE],
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire('/');" },
  })
  const miniflare = new Miniflare({
    modules: true,
    script: script?.text ?? '',
    compatibilityDate,
    compatibilityFlags: ['nodejs_compat'],
    bindings: { ...bindings },
  })
  await miniflare.ready
  return {
    get: async (path) => {
      const response = await miniflare.dispatchFetch(new URL(path, 'http://worker.test'))
      return { status: response.status, text: await response.text() }
    },
    stop: () => miniflare.dispose(),
  }
}
