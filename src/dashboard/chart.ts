import { inDigits } from '../shared/readable.ts'
import { type Html, html } from './html.ts'

/** A bar of the chart. */
export interface Bar {
  readonly name: string
  readonly count: number
}

const HEIGHT = 100
const STEP = 10

/** How many bars have names. */
const NAMED = 4

/** Bars as SVG, without a library, a script or a style: the page's policy forbids what libraries write. */
function drawing(all: readonly Bar[], most: number, name: string, title: string): Html {
  const bars = all.map(({ name, count }, place) => {
    // A bar with any count can be seen.
    const height = count > 0 ? Math.max(3, (HEIGHT * count) / most) : 0
    return html`<g><title>${name}: ${inDigits(count)}</title><rect class="hit" x="${place * STEP}" width="${STEP}" height="${HEIGHT}"/>
<rect x="${place * STEP + 1}" y="${HEIGHT - height}" width="${STEP - 2}" height="${height}"/></g>`
  })
  return html`<svg class="${name}" viewBox="0 0 ${all.length * STEP} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${title}">${bars}</svg>`
}

/** A small chart in a row. `most` is the height of all charts that it is compared with. */
export function sparkline(all: readonly Bar[], most: number, title: string): Html {
  return drawing(all, most, 'spark', title)
}

/** A chart with its title, with axes whose words are as large as the page's, and its numbers. */
export function chart(all: readonly Bar[], title: string): Html {
  const most = Math.max(0, ...all.map(({ count }) => count))
  const names = all.filter((_, place) => place % (all.length / NAMED) === 0)
  const counted = all.filter(({ count }) => count > 0)
  return html`<figure><figcaption>${title}</figcaption><div class="axis"><span>${inDigits(most)}</span><span>0</span></div>
${drawing(all, most, 'chart', title)}<div class="names">${names.map(({ name }) => html`<span>${name}</span>`)}</div>
<details><summary>The same in numbers</summary><dl>${counted.map(({ name, count }) => html`<div><dt>${name}</dt><dd>${inDigits(count)}</dd></div>`)}</dl></details></figure>`
}

/** How much of a limit is used, from 0 to 1. The words next to it say the same. */
export function meter(share: number, level: 'some' | 'near' | 'all'): Html {
  return html`<svg class="meter ${level}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="rail" width="100" height="8"/><rect width="${Math.round(share * 1000) / 10}" height="8"/></svg>`
}
