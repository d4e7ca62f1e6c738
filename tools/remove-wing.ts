import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join, normalize } from 'node:path'
import { SHOWN_BY, type Wing, wingOf } from '../test/support/wings.ts'

/** What was removed with a wing. */
export interface Removed {
  /** The wing, and those that show what it finds. */
  readonly wings: readonly Wing[]
  /** What users import, such as `drizzle-ratelimit/schedule`. */
  readonly entries: readonly string[]
  /** The tests, examples and loads outside of its folders that use it, such as those of several wings. */
  readonly users: readonly string[]
}

/** The folders that hold users of the package. */
const OUTSIDE = ['test', 'examples', 'bench', 'mutants', 'tools']

/** Removes a wing from a copy of the repository: its folders, its entries, and what uses it. */
export async function removeWing(folder: string, wing: Wing): Promise<Removed> {
  const wings = [wing, ...(SHOWN_BY[wing] ?? [])]
  const isOf = (file: string) =>
    wings.some((each) => file.startsWith(`test/${each}/`) || wingOf(file) === each)
  const own = (await filesIn(folder, ['src', 'test'])).filter(isOf)
  const entries = await removeEntries(folder, wings)
  await Promise.all(own.map((file) => rm(join(folder, file))))
  return { wings, entries, users: await removeUsers(folder, [...own, ...entries]) }
}

/** Takes the entries out of package.json and `etc/`. Returns their names. */
async function removeEntries(folder: string, wings: readonly Wing[]): Promise<string[]> {
  const home = join(folder, 'package.json')
  const settings = JSON.parse(await readFile(home, 'utf8'))
  const isOf = (target: unknown) => {
    const [, file = ''] = /dist\/(src\/[\w/.-]+)\.js"/.exec(JSON.stringify(target)) ?? []
    return wings.some((wing) => wingOf(`${file}.ts`) === wing)
  }
  const paths = Object.keys(settings.exports).filter((path) => isOf(settings.exports[path]))
  for (const path of paths) delete settings.exports[path]
  if (isOf(settings.bin)) delete settings.bin
  await writeFile(home, JSON.stringify(settings, null, 2))
  const entries = paths.map((path) => `drizzle-ratelimit${path.slice(1)}`)
  await Promise.all(entries.map((entry) => rm(join(folder, 'etc', `${entry.replace('/', '-')}.api.md`))))
  return entries
}

/** Removes the files that name something that was removed, and those that name these. Returns them. */
async function removeUsers(folder: string, removed: readonly string[]): Promise<string[]> {
  const gone = new Set(removed)
  const texts = new Map<string, string>()
  for (const file of await filesIn(folder, OUTSIDE)) {
    if (/\.[cm]?[jt]sx?$/.test(file)) texts.set(file, await readFile(join(folder, file), 'utf8'))
  }
  const users: string[] = []
  for (let found = ['']; found.length > 0; ) {
    found = [...texts.keys()].filter((file) =>
      namesIn(file, texts.get(file) ?? '').some((each) => gone.has(each)),
    )
    for (const file of found) {
      texts.delete(file)
      gone.add(file)
      users.push(file)
      await rm(join(folder, file))
    }
  }
  return users.toSorted()
}

/** What the strings in a file name: entries, tests and examples, and files relative to this one. */
function namesIn(file: string, text: string): string[] {
  const strings = [...text.matchAll(/(['"])([\w./[\]-]+)\1/g)].map(([, , each = '']) => each)
  return strings
    .filter((each) => !each.startsWith('src/'))
    .map((each) => (each.startsWith('.') ? normalize(join(dirname(file), each)) : each))
}

async function filesIn(folder: string, places: readonly string[]): Promise<string[]> {
  const found = await Promise.all(
    places.map(async (place) => {
      const entries = await readdir(join(folder, place), { recursive: true, withFileTypes: true })
      return entries.filter((each) => each.isFile()).map((each) => join(each.parentPath, each.name))
    }),
  )
  return found.flat().map((file) => file.slice(folder.length + 1))
}
