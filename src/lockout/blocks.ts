import { MAX_MS } from '../kernel/duration.ts'
import { type Exclusion, hasLayer, ownLayer } from '../kernel/engine/own-layer.ts'
import type { StoredLimiter } from '../kernel/limits/algorithm.ts'
import type { Layer } from '../kernel/options/layer.ts'
import { lockoutOf } from './limit.ts'

const NO_MEMORY = 'A block holds at once in every process, so no memory answers before it.'

const EXCLUDES: readonly Exclusion[] = [
  ['prefetch', (settings) => hasLayer(settings, 'prefetch'), NO_MEMORY],
  ['inMemoryBlock', ({ inMemoryBlock }) => inMemoryBlock, NO_MEMORY],
  ['dryRun', ({ dryRun }) => dryRun, 'A dry run lets every call pass, and a block lets none.'],
  ['a lockout', ({ limiter }) => limiter.algorithm.numbers.block, 'block works on a lockout without it.'],
]

/**
 * No count reaches it, and unlike Infinity it is a limit, so a block leaves nothing of it. The window says how
 * far a clock may be behind the one that has written a block.
 */
const GATE: StoredLimiter = /* @__PURE__ */ lockoutOf(Number.MAX_SAFE_INTEGER, '1h', {
  block: 1,
  max: MAX_MS,
})

/**
 * Lets `block` deny the keys of a limiter for a time, whatever they have used. Each charge then looks at a
 * second row first. A lockout can be blocked without it.
 *
 * @example
 * ```ts
 * import { Ratelimit } from 'drizzle-ratelimit'
 * import { block, blocks } from 'drizzle-ratelimit/lockout'
 * import { db } from './app.ts'
 *
 * const limiter = Ratelimit.tokenBucket(5, '10s', 20)
 * const api = new Ratelimit({ db, limiter, prefix: 'api', use: [blocks()] })
 * await block(api, 'user:123', '1h')
 * ```
 */
export function blocks(): Layer {
  return ownLayer<Layer>({ name: 'blocks' }, { excludes: EXCLUDES, gate: GATE })
}
