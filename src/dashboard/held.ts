import { inDigits } from '../shared/readable.ts'
import type { Held, Holding } from '../shared/shown.ts'
import { type Html, html } from './html.ts'
import { hrefWith, type Looking, pageOf, section } from './layout.ts'
import type { Limit } from './limit.ts'
import { keyLink } from './links.ts'
import { type Cell, type Column, lastPage, PAGE, pager, table } from './table.ts'

/** The most that are read for a list. */
export const SHOWN = 1_000

/** What keys hold for a time: a page of a list of all keys. */
export async function heldTable(
  limit: Limit,
  holding: Pick<Holding, 'name' | 'title' | 'columns'>,
  found: readonly Held[],
  now: number,
  looking: Looking,
): Promise<Html> {
  const { name, title } = holding
  const at = Math.min(pageOf(looking, name), lastPage(found.length))
  const some = found.slice((at - 1) * PAGE, at * PAGE)
  const columns = heldColumns(holding, found, now, looking)
  const rows = await Promise.all(
    some.map(async (each) => [
      await keyLink(limit, each.key, looking),
      ...columns.map(([, cellOf]) => cellOf(each)),
    ]),
  )
  if (rows.length === 0) return section(name, title, html`<p class="faint">None.</p>`)
  const pages = pager(
    at,
    found.length,
    (to) => `${hrefWith(looking, { [name]: to })}#${name}`,
    found.length >= SHOWN,
  )
  const shown = table([{ name: 'Key' }, ...columns.map(([column]) => column)], rows)
  return section(name, title, html`${shown}${pages}`)
}

/** The columns of what is held, without the key, and what they show of each. */
export function heldColumns(
  { columns: [name, amount] }: Pick<Holding, 'columns'>,
  all: readonly Held[],
  now: number,
  { times }: Looking,
): (readonly [Column, (held: Held) => Cell])[] {
  const hasSince = all.some(({ since }) => since !== undefined)
  return [
    ...(name === undefined ? [] : [[{ name, isText: true }, nameOf] as const]),
    ...(amount === undefined ? [] : [[{ name: amount }, amountOf] as const]),
    ...(hasSince ? [[{ name: 'Since' }, (held: Held) => times.since(held.since, now)] as const] : []),
    [{ name: 'Ends' }, (held) => times.until(held.until, now)],
  ]
}

function nameOf({ name, about }: Held): Html {
  return html`<span><code>${name}</code>${about === undefined ? undefined : html`<small>${about}</small>`}</span>`
}

function amountOf({ amount }: Held): Cell {
  return amount === undefined ? undefined : inDigits(amount)
}
