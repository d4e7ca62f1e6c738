import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { Mutant } from './mutants.ts'
import { nameOf, type Test } from './test.ts'
import { treeHash } from './tree.ts'

/** The lines of a test's run that were not executed, by the files of src/ that it loaded. */
type Lines = Readonly<Record<string, readonly number[]>>

/** A statement in the report of Vitest. */
interface Report {
  readonly [file: string]: {
    readonly statementMap: Readonly<Record<string, { start: { line: number }; end: { line: number } }>>
    readonly s: Readonly<Record<string, number>>
  }
}

const FILE = 'mutants-coverage.json'

/** Which lines of the source each test executes. A test cannot kill a mutant whose line it does not execute. */
export class Coverage {
  readonly #missed: ReadonlyMap<string, Lines>

  private constructor(missed: ReadonlyMap<string, Lines>) {
    this.#missed = missed
  }

  /** Runs each of the tests by itself, so many at a time, unless a file has what they executed. */
  static async of(tests: readonly Test[], serverUrl: string, workers: number): Promise<Coverage> {
    const tree = treeHash()
    const known = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {}
    if (known.tree === tree) return new Coverage(new Map(Object.entries(known.missed)))
    const missed = new Map<string, Lines>()
    const queue = tests.values()
    const work = async () => {
      for (const test of queue) missed.set(nameOf(test), await missedBy(test, serverUrl))
    }
    await Promise.all(Array.from({ length: workers }, work))
    writeFileSync(FILE, JSON.stringify({ tree, missed: Object.fromEntries(missed) }))
    return new Coverage(missed)
  }

  covers(test: Test, { file, line, lastLine }: Mutant): boolean {
    const lines = this.#missed.get(nameOf(test))
    if (!lines) return true
    const missed = lines[file]
    // A file that is not in the report was not loaded.
    if (!missed) return false
    return Array.from({ length: lastLine - line + 1 }, (_, i) => line + i).some(
      (each) => !missed.includes(each),
    )
  }
}

async function missedBy({ project, path }: Test, serverUrl: string): Promise<Lines> {
  const folder = await mkdtemp(join(tmpdir(), 'drizzle-ratelimit-coverage-'))
  try {
    const options = ['enabled', 'reporter=json', `reportsDirectory=${folder}`, 'reportOnFailure']
    await promisify(execFile)(
      process.execPath,
      [
        resolve('node_modules/vitest/vitest.mjs'),
        ...['run', '--project', project, `test/${path}.test.ts`],
        ...options.map((option) => `--coverage.${option}`),
      ],
      { env: { ...process.env, FC_SEED: '1', DATABASE_URL: serverUrl }, maxBuffer: 2 ** 26 },
    ).catch(() => console.error(`${path} fails without a mutant.`))
    const report: Report = JSON.parse(await readFile(join(folder, 'coverage-final.json'), 'utf8'))
    return Object.fromEntries(
      Object.entries(report).map(([file, { statementMap, s }]) => [
        relative('src', file),
        missedLines(Object.entries(statementMap).map(([id, at]) => ({ ...at, count: s[id] ?? 0 }))),
      ]),
    )
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

interface Statement {
  readonly start: { readonly line: number }
  readonly end: { readonly line: number }
  readonly count: number
}

/** A line counts as executed if one of the shortest statements on it was. */
function missedLines(statements: readonly Statement[]): number[] {
  const shortest = new Map<number, { length: number; count: number }>()
  for (const { start, end, count } of statements) {
    const length = end.line - start.line
    for (let line = start.line; line <= end.line; line++) {
      const known = shortest.get(line)
      if (!known || length < known.length) shortest.set(line, { length, count })
      else if (length === known.length) known.count = Math.max(known.count, count)
    }
  }
  return [...shortest].flatMap(([line, { count }]) => (count === 0 ? [line] : []))
}
