import { spawnSync } from 'node:child_process'
import { gzipSync } from 'node:zlib'
import { type OutputChunk, rolldown } from 'rolldown'
import { expect, inject, test } from 'vitest'

const consumer = inject('consumer')

/**
 * What users may rely on. It has room for some hundred bytes of a feature, and none for the code of `limitAll`,
 * reservations or `blockUntilReady`, which is loaded on first use.
 */
const MAX_BYTES = 31_500
/** Of what importing Drizzle takes. */
const MAX_IMPORT_PERCENT = 28

/** The files that a bundler makes of an import. Drizzle is not counted, for the application has it anyway. */
async function bundled(source: string): Promise<readonly OutputChunk[]> {
  const bundle = await rolldown({
    input: 'entry',
    cwd: consumer,
    external: /^drizzle-orm/,
    plugins: [
      {
        name: 'entry',
        resolveId: (id) => (id === 'entry' ? `${consumer}/entry.js` : null),
        load: (id) => (id === `${consumer}/entry.js` ? source : null),
      },
    ],
  })
  const { output } = await bundle.generate({ format: 'esm', minify: true })
  return output.filter((file) => file.type === 'chunk')
}

/** The entry and what it imports at once, without what is imported when it is called. */
function fromTheStart(chunks: readonly OutputChunk[]): readonly OutputChunk[] {
  const needed = new Set(chunks.filter(({ isEntry }) => isEntry).map(({ fileName }) => fileName))
  for (const name of needed) {
    const { imports = [] } = chunks.find(({ fileName }) => fileName === name) ?? {}
    for (const imported of imports) needed.add(imported)
  }
  return chunks.filter(({ fileName }) => needed.has(fileName))
}

function gzipped(chunks: readonly OutputChunk[]): number {
  return chunks.reduce((sum, { code }) => sum + gzipSync(code, { level: 9 }).length, 0)
}

test(`Ratelimit is at most ${MAX_BYTES} bytes, minified and gzipped`, async () => {
  const chunks = await bundled("export { Ratelimit } from 'drizzle-ratelimit'")
  const start = gzipped(fromTheStart(chunks))
  console.log(
    `Ratelimit: ${start} bytes from the start, ${gzipped(chunks) - start} more when they are needed`,
  )
  expect(start).toBeLessThanOrEqual(MAX_BYTES)
})

test('a bundle leaves out the entries and names that it does not import', async () => {
  const codeOf = async (source: string) => (await bundled(source)).map(({ code }) => code).join('\n')
  const onlyTables = await codeOf("export { rateLimitDurable } from 'drizzle-ratelimit/schema'")
  const onlyLimits = await codeOf("export { Ratelimit } from 'drizzle-ratelimit'")
  const calendar = await codeOf("export { calendarWindow } from 'drizzle-ratelimit/calendar'")
  const slots = await codeOf("export { Semaphore } from 'drizzle-ratelimit/semaphore'")
  expect(onlyTables.length).toBeLessThan(5000)
  expect(onlyTables).not.toContain('pg-proxy')
  expect(onlyLimits).not.toMatch(/Temporal|pg_index|ratelimit_missing/)
  expect(calendar).toContain('Temporal')
  expect(slots).toContain('ratelimit_missing')
})

interface ImportCost {
  /** The CPU time that the parts of Drizzle take that the package needs, in milliseconds. */
  readonly drizzleMs: number
  /** What the package takes after them. */
  readonly ownMs: number
}

/** What importing an entry costs in a new process. Without an entry: what measuring it costs. */
function importCost(entry?: string): ImportCost {
  const script = `
    const cpuMs = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1000 }
    const start = cpuMs()
    for (const path of ['', '/pg-core', '/pg-proxy']) await import('drizzle-orm' + path)
    const between = cpuMs()
    ${entry ? `await import('${entry}')` : ''}
    console.log(JSON.stringify({ drizzleMs: between - start, ownMs: cpuMs() - between }))`
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: consumer,
    encoding: 'utf8',
  })
  if (stdout === '') throw new Error(stderr)
  return JSON.parse(stdout)
}

test(`importing it takes at most ${MAX_IMPORT_PERCENT} % of what importing Drizzle takes`, () => {
  // Machines differ in speed, so the two are compared. Other processes make an import take longer, and none
  // makes it take less: the least counts, of as many runs as it takes.
  const runs: (readonly [ImportCost, ImportCost])[] = []
  const leastOf = (costs: readonly number[]) => Math.min(...costs)
  let percent = Number.POSITIVE_INFINITY
  while (percent > MAX_IMPORT_PERCENT && runs.length < 40) {
    for (let i = 0; i < 5; i++) runs.push([importCost('drizzle-ratelimit'), importCost()])
    const drizzleMs = leastOf(runs.flatMap((pair) => pair.map((cost) => cost.drizzleMs)))
    const ownMs = leastOf(runs.map(([full]) => full.ownMs)) - leastOf(runs.map(([, empty]) => empty.ownMs))
    percent = (100 * ownMs) / drizzleMs
    console.log(
      `importing drizzle-ratelimit: ${ownMs.toFixed(1)} ms beyond ${drizzleMs.toFixed(1)} ms of Drizzle`,
    )
  }
  expect(percent).toBeLessThanOrEqual(MAX_IMPORT_PERCENT)
})
