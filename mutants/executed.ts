import { relative } from 'node:path'
import type { Mutant } from './mutants.ts'

/** What a test executes. */
export interface Executed {
  /** How many statements. */
  readonly statements: number
  /** The lines that it does not execute, by the files that it loads. */
  readonly missed: Readonly<Record<string, readonly number[]>>
}

/** What Vitest reports of each file. */
type Report = Readonly<Record<string, FileReport>>

interface FileReport {
  readonly statementMap: Readonly<Record<string, { start: { line: number }; end: { line: number } }>>
  readonly s: Readonly<Record<string, number>>
}

/** The statements that were executed, and the lines that were not. */
export function executedIn(report: Report): Executed {
  const files = Object.entries(report)
  const counts = files.flatMap(([, { s }]) => Object.values(s))
  return {
    statements: counts.filter((count) => count > 0).length,
    missed: Object.fromEntries(files.map(([file, each]) => [relative('', file), missedLines(each)])),
  }
}

/** A line is executed if one of the shortest statements on it is. */
function missedLines({ statementMap, s }: FileReport): number[] {
  const shortest = new Map<number, { length: number; isExecuted: boolean }>()
  for (const [id, { start, end }] of Object.entries(statementMap)) {
    const [length, isExecuted] = [end.line - start.line, (s[id] ?? 0) > 0]
    for (let line = start.line; line <= end.line; line++) {
      const known = shortest.get(line)
      if (!known || length < known.length) shortest.set(line, { length, isExecuted })
      else if (length === known.length) known.isExecuted ||= isExecuted
    }
  }
  return [...shortest].flatMap(([line, { isExecuted }]) => (isExecuted ? [] : [line]))
}

export function executes({ missed }: Executed, { file, line, lastLine }: Mutant): boolean {
  const lines = Array.from({ length: lastLine - line + 1 }, (_, i) => line + i)
  return lines.some((each) => missed[file]?.includes(each) === false)
}
