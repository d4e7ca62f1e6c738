import { dirname } from 'node:path'
import type { Chosen } from './choose.ts'
import { describe, type Mutant } from './mutants.ts'
import type { Fate } from './trial.ts'

/** Prints the counts of each folder. True if none survived. */
export function report(
  { among, equivalent }: Pick<Chosen, 'among' | 'equivalent'>,
  fates: ReadonlyMap<Mutant, Fate>,
): boolean {
  const survivors = [...fates].filter(([, { kind }]) => kind === 'survived' || kind === 'not entered')
  for (const [mutant, { kind, by }] of survivors) console.log(`${kind}: ${describe(mutant)}, ${by}`)
  for (const folder of new Set([...among, ...equivalent].map(({ file }) => dirname(file)))) {
    print(folder, ({ file }) => dirname(file) === folder)
  }
  print('all', () => true)
  return survivors.length === 0

  function print(name: string, isIn: (mutant: Mutant) => boolean): void {
    const tried = [...fates].flatMap(([mutant, fate]) => (isIn(mutant) ? [fate] : []))
    const of = `${among.filter(isIn).length} mutants and ${equivalent.filter(isIn).length} equivalent`
    console.log(`${name}: ${of}; ${countsOf(tried)}`)
  }
}

function countsOf(fates: readonly Fate[]): string {
  const counts = new Map<string, number>()
  for (const { kind } of fates) counts.set(kind, (counts.get(kind) ?? 0) + 1)
  const parts = [...counts].map(([kind, count]) => `${count} ${kind}`)
  return [`${fates.length} tried`, ...parts.toSorted()].join(', ')
}
