import { readFileSync } from 'node:fs'
import type { Change } from './change.ts'
import { type Entered, functionAround, functionsIn } from './entered.ts'
import { changesAt } from './rules.ts'
import { placesIn } from './walk.ts'

/** A source file with one mistake in it. */
export interface Mutant extends Change {
  /** Such as src/kernel/duration.ts. */
  readonly file: string
  /** The names of the functions, variables and properties around it, such as `algorithm.sql.fresh`. */
  readonly where: string
  /** The function around it. */
  readonly within: Entered | undefined
  /** From 1. */
  readonly line: number
  readonly lastLine: number
  /** What stands there without it. */
  readonly before: string
}

/** Every mutant of a file. Those of one kind at one place are numbered, from the second. */
export function mutantsOf(file: string): readonly Mutant[] {
  const source = readFileSync(file, 'utf8')
  const times = new Map<string, number>()
  const places = placesIn(file, source)
  const functions = functionsIn(file, places)
  return places.flatMap((place) => {
    const within = functionAround(place, functions)
    return changesAt(place, source).map((change) => {
      const { start, end, kind } = change
      const { where } = place
      const nth = (times.get(`${where} ${kind}`) ?? 0) + 1
      times.set(`${where} ${kind}`, nth)
      const [line, lastLine] = [lineOf(source, start), lineOf(source, end)]
      const before = source.slice(start, end)
      const numbered = nth > 1 ? `${kind} #${nth}` : kind
      return { ...change, kind: numbered, file, where, within, line, lastLine, before }
    })
  })
}

function lineOf(source: string, at: number): number {
  return source.slice(0, at).split('\n').length
}

/** The file with the mistake in it. */
export function mutated({ start, end, text }: Mutant, source: string): string {
  return source.slice(0, start) + text + source.slice(end)
}

/** The mutant in one line. */
export function describe({ file, line, where, kind, before, text }: Mutant): string {
  return `${file}:${line} ${where}, ${kind}: ${short(before)} -> ${short(text)}`
}

const MAX_SHOWN = 60

function short(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim()
  return line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)}...` : line || 'nothing'
}
