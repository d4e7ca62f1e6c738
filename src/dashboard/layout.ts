import type { DashboardWrite } from '../shared/shown.ts'
import { Html, html } from './html.ts'
import type { Limit } from './limit.ts'
import type { Seals } from './seal.ts'
import { STYLE } from './style.ts'
import type { Times } from './times.ts'

/** What a page needs to know of its limits, its viewer and its address. */
export interface Looking {
  readonly limits: readonly Limit[]
  readonly times: Times
  /** Unix milliseconds. */
  readonly now: number
  /** The fields of the address. */
  readonly asked: URLSearchParams
  readonly seals: Seals
  /** For forms. */
  readonly token: string
  /** The changes that the viewer may make. */
  readonly allow: readonly DashboardWrite[]
}

/** Which pages refresh themselves, and how often: seconds. */
const EVERY = [10, 60] as const

/** An address of the page with these fields. */
export function href(fields: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(fields).flatMap(([name, value]) =>
    value === undefined || value === '' ? [] : [[name, String(value)]],
  )
  return `?${new URLSearchParams(given)}`
}

/** The same address with other fields. */
export function hrefWith({ asked }: Looking, fields: Readonly<Record<string, string | number>>): string {
  const { said: _, ...kept } = Object.fromEntries(asked)
  return href({ ...kept, ...fields })
}

/** Which page of a list the address asks for. */
export function pageOf({ asked }: Looking, list: string): number {
  const page = Number(asked.get(list) ?? 1)
  return Number.isSafeInteger(page) && page > 0 && page < 1e6 ? page : 1
}

/** A part of a page, with its title. */
export function section(id: string, title: string, body: Html): Html {
  return html`<section aria-labelledby="${id}"><h2 id="${id}">${title}</h2>
${body}</section>`
}

/** A whole page. `head` is its heading, and `above` its limit. The page at the `top` has none above it. */
export function pageWith(
  {
    title,
    head,
    above,
  }: { readonly title: string; readonly head: Html; readonly above?: Limit | 'top' | undefined },
  body: Html,
  looking?: Looking,
): string {
  const every = Number(looking?.asked.get('every') ?? 0)
  const refreshes = EVERY.find((each) => each === every)
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
${refreshes ? html`<meta http-equiv="refresh" content="${refreshes}">` : undefined}
<title>${title}</title>
<style>${new Html(STYLE)}</style>
</head>
<body><a class="skip" href="#main">To the content</a>
<header>${above === 'top' ? undefined : html`<nav aria-label="Above"><a href="?">All limits</a>${above ? html` / <a href="${href({ limit: above.name })}">${above.name}</a>` : undefined}</nav>`}
${head}</header>
<main id="main" tabindex="-1">${body}</main>
${looking ? foot(looking, refreshes) : undefined}
</body>
</html>
`.text
}

function foot(looking: Looking, refreshes: number | undefined): Html {
  const { times, now } = looking
  const choices = [0, ...EVERY].map((each) => {
    const name = each === 0 ? 'off' : `every ${each} s`
    return each === (refreshes ?? 0)
      ? html` <strong>${name}</strong>`
      : html` <a href="${hrefWith(looking, { every: each || '' })}">${name}</a>`
  })
  return html`<footer><p>As of ${times.at(now)}. Times are in ${times.zone}.</p>
<p>Refresh: ${choices}</p></footer>`
}

/** Something that went wrong. */
export function failurePage(message: string): string {
  return pageWith(
    { title: 'That did not work', head: html`<h1>That did not work</h1>` },
    html`<p class="failed" role="alert">${message}</p>`,
  )
}
