import { HANDLE } from '../base/handle.ts'
import type { Layer } from '../options/layer.ts'
import type { Parts } from './parts.ts'

/** What a layer of the package sees of its limiter. */
export type LayerParts = Pick<Parts, 'rows' | 'alone'>

interface OwnLayer extends Layer {
  [HANDLE]?(parts: LayerParts): Layer
}

/** A layer that begins anew with each limiter, whose rows it uses. */
export function ownLayer(name: string, begin: (parts: LayerParts) => Layer): Layer {
  const layer: OwnLayer = { name, [HANDLE]: begin }
  return layer
}

/** The layer as it is with one limiter. */
export function begun(layer: OwnLayer, parts: LayerParts): Layer {
  return layer[HANDLE]?.(parts) ?? layer
}
