import type { RateLimitTable } from '../../schema/index.ts'
import { type Rendered, render } from '../database/rendered.ts'
import { builder } from './builder.ts'
import { isTheRow } from './settled.ts'

/** The statement that forgets a key: without a row its limit is as new. */
export function resetStatement(table: RateLimitTable): Rendered {
  return render(builder.delete(table).where(isTheRow(table)))
}
