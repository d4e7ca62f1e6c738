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
  const rows = await Promise.all(
    some.map(async (each) => [
      await keyLink(limit, each.key, looking),
      ...heldCells(each, holding, found, now, looking),
    ]),
  )
  if (rows.length === 0) return section(name, title, html`<p class="faint">None.</p>`)
  const pages = pager(
    at,
    found.length,
    (to) => `${hrefWith(looking, { [name]: to })}#${name}`,
    found.length >= SHOWN,
  )
  const shown = table([{ name: 'Key' }, ...heldColumns(holding, found)], rows)
  return section(name, title, html`${shown}${pages}`)
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
