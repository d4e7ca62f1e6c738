import { HANDLE } from '../base/handle.ts'
import type { AnyLayer } from '../options/choices.ts'
import type { Layer } from '../options/layer.ts'
import type { Settings } from '../options/table.ts'
import type { Ledger } from '../store/call.ts'
import type { Parts } from './parts.ts'

/** What a layer of the package sees of its limiter. */
export type LayerParts = Pick<Parts, 'rows' | 'alone'>

/** What a layer of the package gives to each limiter. */
export interface OwnParts {
  /** Hands out the entries of its statements. */
  ledger?(settings: Settings): Ledger
  /** What gets to know how its calls were answered. */
  begin?(parts: LayerParts): Layer[]
}

type OwnLayer = AnyLayer & { readonly [HANDLE]?: OwnParts }

/** A layer that gives a limiter more than layers of others can. */
export function ownLayer<L extends AnyLayer>(layer: L, own: OwnParts): L {
  return { ...layer, [HANDLE]: own }
}

/** What the layers of the package give. No two of them give the same. */
export function partsIn(use: readonly AnyLayer[]): OwnParts {
  return Object.assign({}, ...use.map((layer: OwnLayer) => layer[HANDLE]))
}

/** Whether it is a layer of others, which is told of the calls itself. */
export function isOfOthers(layer: AnyLayer): layer is Layer {
  return !(HANDLE in layer)
}
