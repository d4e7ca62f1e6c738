import { inDigits } from '../shared/readable.ts'
import type { ShownKey } from '../shared/shown.ts'
import { meter } from './chart.ts'
import { html } from './html.ts'
import type { Looking } from './layout.ts'
import type { Cell } from './table.ts'

/** The columns of how much of a limit is used, after a first column. */
export const USAGE = [{ name: 'Used' }, { name: 'Left' }, { name: 'Limit' }, { name: 'Whole again' }] as const

/** From this share on a key is near its limit. */
const NEAR = 0.8

/** The cells of these columns. */
export function usageCells(
  { used, limit, left, reset, blockedUntil }: ShownKey,
  now: number,
  { times }: Looking,
): Cell[] {
  const block =
    blockedUntil === undefined
      ? undefined
      : html`<span><strong class="bad">blocked, ends</strong> ${times.until(blockedUntil, now)}</span>`
  if (limit === undefined || left === undefined) {
    return [html`<span>${inDigits(used)}<small>another plan</small></span>`, undefined, undefined, block]
  }
  const share = limit > 0 ? Math.min(Math.max(used / limit, 0), 1) : 1
  // What is blocked has nothing left, whatever it has used. Of fractions, a rest may be left.
  const level = share >= 1 || (left === 0 && !block) ? 'all' : share >= NEAR ? 'near' : 'some'
  return [
    html`<span>${Number.isFinite(limit) ? html`${meter(share, level)}<span class="share ${level}">${percent(share)}</span>` : undefined}<small>${inDigits(used)}</small></span>`,
    inDigits(left),
    inDigits(limit),
    block ?? times.until(reset, now),
  ]
}

/** A share in percent. What is not all is never called 100 %. */
function percent(share: number): string {
  return `${Math.floor(share * 100 + 1e-9)} %`
}
