import { inDigits } from '../kernel/base/readable.ts'
import { type Html, html } from './html.ts'

/** A bar of the chart. */
export interface Bar {
  readonly name: string
  readonly count: number
}

const BAR = { width: 22, gap: 4 }
const HEIGHT = { bars: 96, below: 18, above: 14 }

/** How many bars lie between two names. */
const NAMED = 6

/** Bars as SVG, without a library, a script or a style: the page's policy forbids what libraries write. */
export function chart(bars: readonly Bar[], title: string): Html {
  const most = Math.max(1, ...bars.map(({ count }) => count))
  const width = bars.length * (BAR.width + BAR.gap)
  const floor = HEIGHT.above + HEIGHT.bars
  return html`<svg class="chart" viewBox="0 0 ${width} ${floor + HEIGHT.below}" role="img" aria-label="${title}">
<text x="0" y="10">${inDigits(most)}</text>
<line x1="0" x2="${width}" y1="${floor}" y2="${floor}"/>
${bars.map(({ name, count }, place) => {
  // A bar with any count can be seen.
  const height = count > 0 ? Math.max(2, Math.round((HEIGHT.bars * count) / most)) : 0
  const x = place * (BAR.width + BAR.gap)
  return html`<g><title>${name}: ${inDigits(count)}</title>
<rect x="${x}" y="${floor - height}" width="${BAR.width}" height="${height}"/>
${place % NAMED === 0 ? html`<text x="${x}" y="${floor + 14}">${name}</text>` : undefined}</g>`
})}</svg>`
}
