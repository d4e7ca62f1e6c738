import { execFile } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import type { Mutant } from './mutants.ts'
import { nameOf, type Test } from './test.ts'
import { treeHash } from './tree.ts'

/** What a test has executed. */
interface Executed {
  /** How many statements. */
  readonly statements: number
  /** The lines that were not executed, by the files of src/ that it loaded. */
  readonly missed: Readonly<Record<string, readonly number[]>>
}

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
  readonly #executed: ReadonlyMap<string, Executed>

  /** Any test may execute any line. */
  static readonly UNKNOWN: Coverage = new Coverage(new Map())

  private constructor(executed: ReadonlyMap<string, Executed>) {
    this.#executed = executed
  }

  /** Runs each of the tests by itself, so many at a time, unless a file has what they executed. */
  static async of(tests: readonly Test[], serverUrl: string, workers: number): Promise<Coverage> {
    const tree = treeHash()
    const known = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : {}
    if (known.tree === tree) return new Coverage(new Map(Object.entries(known.executed)))
    const executed = new Map<string, Executed>()
    const queue = tests.values()
    const work = async () => {
      for (const test of queue) executed.set(nameOf(test), await executedBy(test, serverUrl))
    }
    await Promise.all(Array.from({ length: workers }, work))
    writeFileSync(FILE, JSON.stringify({ tree, executed: Object.fromEntries(executed) }))
    return new Coverage(executed)
  }

  covers(test: Test, { file, line, lastLine }: Mutant): boolean {
    const executed = this.#executed.get(nameOf(test))
    if (!executed) return true
    const missed = executed.missed[file]
    // A file that is not in the report was not loaded.
    if (!missed) return false
    return Array.from({ length: lastLine - line + 1 }, (_, i) => line + i).some(
      (each) => !missed.includes(each),
    )
  }

  /** How few statements a test executes: the fewer they are, the more it is about each of them. */
  focus(test: Test): number {
    return 1 / (this.#executed.get(nameOf(test))?.statements ?? 1)
  }
}

async function executedBy({ project, path }: Test, serverUrl: string): Promise<Executed> {
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
    const files = Object.entries(report).flatMap(([path, { statementMap, s }]) => {
      const file = relative('src', path)
      const statements = Object.entries(statementMap).map(([id, at]) => ({ ...at, count: s[id] ?? 0 }))
      return file.startsWith('..') ? [] : [[file, statements] as const]
    })
    const all = files.flatMap(([, statements]) => statements)
    return {
      statements: all.filter(({ count }) => count > 0).length,
      missed: Object.fromEntries(files.map(([file, statements]) => [file, missedLines(statements)])),
    }
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
