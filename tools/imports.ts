import { writeFile } from 'node:fs/promises'
import { instance } from '@viz-js/viz'
import { ENTRIES } from '../test/support/entries.ts'
import { sourceImports } from '../test/support/source-imports.ts'

// `npm run imports` draws docs/imports.svg: what the folders and files of src/ import.

/**
 * What each place imports. A place is a folder of `src` or of its kernel, a file next to those folders, or
 * `schema`.
 */
type Graph = ReadonlyMap<string, ReadonlySet<string>>

async function importsOfPlaces(): Promise<Graph> {
  const graph = new Map<string, Set<string>>()
  for (const [source, files] of await sourceImports()) {
    const place = placeOf(source)
    const targets = graph.get(place) ?? new Set()
    graph.set(place, targets)
    for (const file of files) if (placeOf(file) !== place) targets.add(placeOf(file))
  }
  return graph
}

function placeOf(file: string): string {
  const [root = '', inRoot = '', inKernel = ''] = file.split('/')
  if (root !== 'src') return root
  return inRoot === 'kernel' ? `${inRoot}/${inKernel}` : inRoot
}

/** The places that the package's users import. */
function entryPlaces(): ReadonlySet<string> {
  return new Set([...ENTRIES.values()].map(placeOf))
}

/** Leaves out an import that a longer way of imports implies, so that the picture can be read. */
function essential(graph: Graph): Graph {
  const reached = (from: string, seen = new Set<string>()): ReadonlySet<string> => {
    for (const target of graph.get(from) ?? []) {
      if (seen.has(target)) continue
      seen.add(target)
      reached(target, seen)
    }
    return seen
  }
  const isImplied = (place: string, target: string, targets: ReadonlySet<string>) =>
    [...targets].some((way) => way !== target && reached(way).has(target) && !reached(way).has(place))
  return new Map(
    [...graph].map(([place, targets]) => [
      place,
      new Set([...targets].filter((target) => !isImplied(place, target, targets))),
    ]),
  )
}

/** Readable on white and on black. */
const INK = '#768089'
const FOLDER = '#d9ebe2'
const FILE = '#eef1f3'
const ENTRY = '#2f9e6e'

function dotOf(graph: Graph, entries: ReadonlySet<string>): string {
  const places = [...graph.keys()].toSorted()
  const nodes = places.map((place) => {
    const isFile = place.endsWith('.ts')
    const border = entries.has(place) ? `color="${ENTRY}", penwidth=2.5` : `color="${INK}", penwidth=0.8`
    return `"${place}" [label="${isFile ? place : `${place}/`}", fillcolor="${isFile ? FILE : FOLDER}", ${border}]`
  })
  const edges = places.flatMap((place) =>
    [...(graph.get(place) ?? [])].toSorted().map((target) => `"${place}" -> "${target}"`),
  )
  return `digraph "What each folder and file of src imports" {
    graph [bgcolor=transparent, nodesep=0.45, ranksep=0.5, pad=0.2]
    node [shape=box, style="filled,rounded", fontname="Helvetica,Arial,sans-serif", fontsize=13, fontcolor="#1f2529",
      height=0.42, margin="0.2,0.08"]
    edge [color="${INK}", arrowsize=0.7]
    ${[...nodes, ...edges].join('\n')}
  }`
}

const viz = await instance()
const dot = dotOf(essential(await importsOfPlaces()), entryPlaces())
await writeFile('docs/imports.svg', viz.renderString(dot, { format: 'svg' }))
