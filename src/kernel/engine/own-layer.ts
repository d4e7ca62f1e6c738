import type { RateLimitTable } from '../../../schema/index.ts'
import { HANDLE } from '../base/handle.ts'
import type { StoredLimiter } from '../limits/algorithm.ts'
import type { AnyLayer } from '../options/choices.ts'
import type { Layer } from '../options/layer.ts'
import type { Settings } from '../options/settings.ts'
import { checkOption } from '../options/validate.ts'
import type { Ledger } from '../store/call.ts'
import { plainTable } from '../store/plain-table.ts'
import type { Table } from '../store/store.ts'
import type { Alone, Parts } from './parts.ts'

/** What a layer of the package sees of its limiter. */
export type LayerParts = Pick<Parts, 'rows' | 'alone'>

/** What a layer cannot be combined with, and why. */
export type Exclusion = readonly [
  name: string,
  isThere: (settings: Settings) => unknown,
  /** A sentence. */
  because: string,
]

/** What a layer of the package gives to each limiter. */
export interface OwnParts {
  readonly excludes?: readonly Exclusion[]
  /** Hands out the entries of its statements. */
  ledger?(settings: Settings): Ledger
  /** Has the rows of a table. Default: one server. */
  readonly table?: (table: RateLimitTable) => Table
  /** Takes units of its keys in advance. */
  readonly inAdvance?: NonNullable<Alone['inAdvance']>
  /** A limit that charges look at first. They are denied while nothing is left of it. */
  readonly gate?: StoredLimiter
  /** What gets to know how its calls were answered. */
  begin?(parts: LayerParts): Layer[]
}

type OwnLayer = AnyLayer & { readonly [HANDLE]?: OwnParts }

/** A layer that gives a limiter more than layers of others can. */
export function ownLayer<L extends AnyLayer>(layer: L, own: OwnParts): L {
  return { ...layer, [HANDLE]: own }
}

/**
 * What the layers of the package give to a limiter. No two of them give the same.
 *
 * @throws RatelimitError `INVALID_OPTION` if one of them cannot be combined with the other settings.
 */
export function partsIn(settings: Settings): OwnParts {
  const layers: readonly OwnLayer[] = settings.use
  for (const { name, [HANDLE]: { excludes = [] } = {} } of layers) {
    for (const [other, isThere, because] of excludes) {
      checkOption(!isThere(settings), `${name} cannot be combined with ${other}. ${because}`)
    }
  }
  return givenBy(layers)
}

function givenBy(use: readonly OwnLayer[]): OwnParts {
  return Object.assign({}, ...use.map((layer) => layer[HANDLE]))
}

/** The store of the layers. Undefined if the rows are on one server. */
export function storeIn(use: readonly AnyLayer[]): OwnParts['table'] {
  return givenBy(use).table
}

/** The table, in the store of the layers. */
export function tableOf(table: RateLimitTable, use: readonly AnyLayer[]): Table {
  return (storeIn(use) ?? plainTable)(table)
}

/** Whether there is a layer of the package with this name. */
export function hasLayer({ use }: Settings, name: string): boolean {
  return use.some((layer) => layer.name === name && HANDLE in layer)
}

/** Whether it is a layer of others, which is told of the calls itself. */
export function isOfOthers(layer: AnyLayer): layer is Layer {
  return !(HANDLE in layer)
}
