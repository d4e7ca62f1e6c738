import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { AREAS } from './areas.ts'
import { BY_HAND } from './by-hand.ts'
import { linesOfCode, RULES } from './rules.ts'

/** The source with one mistake in it. */
export interface Mutant {
  /** Stays the same while the line does. */
  readonly id: string
  readonly area: string
  /** In src/. */
  readonly file: string
  /** From 1. */
  readonly line: number
  /** The last one that is changed. */
  readonly lastLine: number
  readonly change: string
  /** The whole file. */
  readonly text: string
}

type Draft = Omit<Mutant, 'id' | 'area'>

/** All mutants, in the order of the areas. */
export function allMutants(): readonly Mutant[] {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .map((file) => file.replaceAll('\\', '/'))
    .filter((file) => file.endsWith('.ts'))
    .toSorted()
  const seen = new Set<string>()
  return AREAS.flatMap(({ name, share }) =>
    files
      .filter((file) => AREAS.find((area) => area.files.test(file))?.name === name)
      .flatMap((file) => {
        const text = readFileSync(`src/${file}`, 'utf8')
        return [...byHand(file, text), ...ruled(file, text).filter((each) => placeOf(each) < share)]
      })
      .filter(({ text, file }) => {
        const same = `${file}\n${text}`
        return !seen.has(same) && seen.add(same)
      })
      .map((draft) => ({ ...draft, area: name, id: idOf(draft) })),
  )
}

/** The mutant in one line. */
export function describe({ id, file, line, change }: Mutant): string {
  return `${id} src/${file}:${line} ${change}`
}

const ids = new Map<string, number>()

/** A hash of the change; those that change equal lines in the same way are numbered. */
function idOf(draft: Draft): string {
  const hash = hashOf(draft)
  const count = (ids.get(hash) ?? 0) + 1
  ids.set(hash, count)
  return count === 1 ? hash : `${hash}-${count}`
}

/** A number from 0 to 1 that is always the same for a change. */
function placeOf(draft: Draft): number {
  return Number.parseInt(hashOf(draft), 16) / 16 ** 7
}

function hashOf({ file, change }: Draft): string {
  return createHash('sha256').update(`${file} ${change}`).digest('hex').slice(0, 7)
}

/** What by-hand.ts looks for and does not find exactly once: the list is out of date. */
export function lostChanges(): readonly string[] {
  return Object.entries(BY_HAND).flatMap(([file, changes]) => {
    const text = existsSync(`src/${file}`) ? readFileSync(`src/${file}`, 'utf8') : ''
    return changes.flatMap(([find]) => {
      const times = text.split(find).length - 1
      return times === 1 ? [] : [`src/${file} has ${times} times: ${find}`]
    })
  })
}

function byHand(file: string, text: string): Draft[] {
  return (BY_HAND[file] ?? []).map(([find, replace]) => {
    const at = text.indexOf(find)
    const line = text.slice(0, at).split('\n').length
    const changed = text.slice(0, at) + replace + text.slice(at + find.length)
    const lastLine = line + find.split('\n').length - 1
    return { file, line, lastLine, change: `${oneLine(find)} -> ${oneLine(replace)}`, text: changed }
  })
}

function ruled(file: string, text: string): Draft[] {
  const lines = text.split('\n')
  return linesOfCode(lines).flatMap((at) => {
    const line = lines[at] as string
    return RULES.flatMap(({ name, find, replace }) =>
      [...line.matchAll(find)].map((match, nth) => {
        const changed = line.slice(0, match.index) + replace + line.slice(match.index + match[0].length)
        const place = nth > 0 ? ` (${nth + 1})` : ''
        return {
          ...{ file, line: at + 1, lastLine: at + 1, change: `${name}${place}: ${line.trim()}` },
          text: lines.with(at, changed).join('\n'),
        }
      }),
    )
  })
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim() || 'nothing'
}
