import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { isEquivalent, staleIn } from './equivalent.ts'
import { type Mutant, mutantsOf } from './mutants.ts'

/** Which mutants to try. */
export interface Choice {
  /** Files, folders, and lines such as src/kernel/duration.ts:12. Default: all of src. */
  readonly paths: readonly string[]
  /** A commit: only files that have changed since then. */
  readonly since?: string | undefined
  /** How many of them, at each path. */
  readonly sample?: number | undefined
  /** The same seed chooses the same ones. */
  readonly seed: string
}

export interface Chosen {
  readonly mutants: readonly Mutant[]
  /** Those that there were to choose from. */
  readonly among: readonly Mutant[]
  /** More that are listed as equivalent. */
  readonly equivalent: readonly Mutant[]
  /** What is listed as equivalent and is made no more. */
  readonly stale: readonly string[]
}

export function choose({ paths, since, sample, seed }: Choice): Chosen {
  const changed = since === undefined ? undefined : changedSince(since)
  const all = sources().flatMap(mutantsOf)
  const wanted = all.filter(
    (mutant) =>
      (paths.length === 0 || paths.some((path) => isAt(mutant, path))) &&
      changed?.includes(mutant.file) !== false,
  )
  const among = wanted.filter((mutant) => !isEquivalent(mutant))
  const equivalent = wanted.filter(isEquivalent)
  const groups = paths.length > 0 ? paths.map((path) => among.filter((each) => isAt(each, path))) : [among]
  const some = groups.flatMap((group) => shuffled(group, seed).slice(0, sample))
  return { mutants: [...new Set(some)], among, equivalent, stale: staleIn(all) }
}

export function sources(): readonly string[] {
  return readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => `src/${file}`)
    .toSorted()
}

function isAt({ file, line, lastLine }: Mutant, path: string): boolean {
  const [place = '', number] = path.replace(/\/$/, '').split(':')
  if (file !== place && !file.startsWith(`${place}/`)) return false
  return number === undefined || (line <= Number(number) && Number(number) <= lastLine)
}

/** Committed or not. */
function changedSince(commit: string): readonly string[] {
  const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).split('\n')
  return [...git('diff', '--name-only', commit, '--', 'src'), ...git('ls-files', '--others', '--', 'src')]
}

function shuffled(mutants: readonly Mutant[], seed: string): readonly Mutant[] {
  const place = ({ file, where, kind }: Mutant) =>
    createHash('sha256').update(`${seed} ${file} ${where} ${kind}`).digest('hex')
  const placed = mutants.map((mutant) => ({ mutant, place: place(mutant) }))
  return placed.toSorted((one, other) => (one.place < other.place ? -1 : 1)).map(({ mutant }) => mutant)
}
