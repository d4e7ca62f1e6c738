import { inDigits } from '../shared/readable.ts'
import { type Html, html } from './html.ts'

export type Cell = Html | string | number | undefined

/** A column. Numbers are aligned. */
export interface Column {
  readonly name: string
  readonly isText?: true
}

/**
 * A table whose rows begin with what they are about. On a narrow screen each row is a card, where the cells
 * have the names of their columns. A row may have fewer cells than there are columns.
 */
export function table(columns: readonly Column[], rows: readonly (readonly Cell[])[]): Html {
  const kind = ({ isText }: Column) => (isText ? 'text' : 'number')
  return html`<table><thead><tr>${columns.map((column, place) => html`<th scope="col" class="${place === 0 ? 'text' : kind(column)}">${column.name}</th>`)}</tr></thead>
<tbody>${rows.map(
    (row) =>
      html`<tr>${columns.map((column, place) => {
        if (place === 0) return html`<th scope="row">${row[0]}</th>`
        return html`<td class="${kind(column)}" data-name="${column.name}">${row[place]}</td>`
      })}</tr>`,
  )}</tbody></table>`
}

/** How many a page has. */
export const PAGE = 50

/** The page of a list, or its last page if it has become shorter than that. */
export async function pageOrLast<Found extends { readonly keys: readonly unknown[]; readonly total: number }>(
  page: number,
  read: (offset: number) => Promise<Found>,
): Promise<Found & { readonly page: number }> {
  const found = await read((page - 1) * PAGE)
  if (page === 1 || found.keys.length > 0) return { ...found, page }
  // A page without keys does not say how many there are.
  const first = await read(0)
  const last = lastPage(first.total)
  return { ...(last === 1 ? first : await read((last - 1) * PAGE)), page: last }
}

/** The last page of so many. */
export function lastPage(total: number): number {
  return Math.max(1, Math.ceil(total / PAGE))
}

/** Which of them a page shows, and links to the pages around it. */
export function pager(page: number, total: number, hrefOf: (page: number) => string, isCut = false): Html {
  const last = lastPage(total)
  const [first, end] = [(page - 1) * PAGE + 1, Math.min(page * PAGE, total)]
  const all = `${inDigits(total)}${isCut ? ' or more' : ''}`
  if (last === 1 && page === 1) return html`<p class="faint">${all} in all.</p>`
  return html`<nav class="pager" aria-label="Pages"><span>${inDigits(first)} to ${inDigits(end)} of ${all}</span>
${page > 1 ? html`<a href="${hrefOf(page - 1)}">Previous</a>` : undefined}
${page < last ? html`<a href="${hrefOf(page + 1)}">Next</a>` : undefined}</nav>`
}
