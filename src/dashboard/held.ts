import { inDigits } from '../shared/readable.ts'
import type { Held, Holding } from '../shared/shown.ts'
import { type Html, html } from './html.ts'
import { hrefWith, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'
import { keyLink } from './links.ts'
import { type Cell, type Column, lastPage, PAGE, pager, table } from './table.ts'

/** The most that are read for a list. */
export const SHOWN = 1_000

/** What keys hold for a time: a page of a list of all keys. */
export async function heldTable(
  shown: {
    readonly limit: Limit
    readonly holding: Pick<Holding, 'name' | 'title' | 'columns'>
    readonly found: readonly Held[]
    readonly now: number
    readonly at: number
  },
  looking: Looking,
): Promise<Html> {
  const { limit, holding, found, now } = shown
  const at = Math.min(shown.at, lastPage(found.length))
  const { name, title } = holding
  const some = found.slice((at - 1) * PAGE, at * PAGE)
  const rows = await Promise.all(
    some.map(async (each) => [
      await keyLink(limit, each.key, looking),
      ...heldCells(each, holding, found, now, looking),
    ]),
  )
  return html`<section aria-labelledby="${name}"><h2 id="${name}">${title}</h2>
${
  rows.length === 0
    ? html`<p class="faint">None.</p>`
    : html`${table([{ name: 'Key' }, ...heldColumns(holding, found)], rows)}${pager(at, found.length, (to) => `${hrefWith(looking, { [name]: to })}#${name}`, found.length >= SHOWN)}`
}</section>`
}

/** The columns of what is held, without the key. */
export function heldColumns(
  { columns: [name, amount] }: Pick<Holding, 'columns'>,
  all: readonly Held[],
): Column[] {
  return [
    ...(name === undefined ? [] : [{ name, isText: true } as const]),
    ...(amount === undefined ? [] : [{ name: amount }]),
    ...(hasSince(all) ? [{ name: 'Since' }] : []),
    { name: 'Ends' },
  ]
}

/** The cells of one, in these columns. */
export function heldCells(
  { name, about, amount, since, until }: Held,
  { columns: [named, counted] }: Pick<Holding, 'columns'>,
  all: readonly Held[],
  now: number,
  { times }: Looking,
): Cell[] {
  return [
    ...(named === undefined
      ? []
      : [
          html`<span><code>${name}</code>${about === undefined ? undefined : html`<small>${about}</small>`}</span>`,
        ]),
    ...(counted === undefined ? [] : [amount === undefined ? undefined : inDigits(amount)]),
    ...(hasSince(all) ? [times.since(since, now)] : []),
    times.until(until, now),
  ]
}

function hasSince(all: readonly Held[]): boolean {
  return all.some(({ since }) => since !== undefined)
}
