import type { Usage } from '../kernel/answers/results.ts'
import { inDigits, inTime } from '../kernel/base/readable.ts'
import type { DeniedHour, DeniedKey } from '../reports/denied.ts'
import type { KeyUsage, OtherUsage } from '../reports/usage.ts'
import { chart } from './chart.ts'
import { Html, html } from './html.ts'
import type { Limit } from './limit.ts'
import { STYLE } from './style.ts'

/** A change that a viewer can make to a key. */
export type DashboardWrite = 'reset' | 'grant' | 'block'

/** Who looks at a page. */
export interface Looking {
  readonly token: string
  readonly allow: readonly DashboardWrite[]
  readonly now: number
}

/** A whole page. */
function page(title: string, body: Html): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${title}</title>
<style>${new Html(STYLE)}</style>
</head>
<body>${body}</body>
</html>
`.text
}

/** The denials of a limit. */
export interface Overview {
  readonly limit: Limit
  readonly hours: readonly DeniedHour[]
}

/** All limits. */
export function overviewPage(all: readonly Overview[]): string {
  return page(
    'Limits',
    html`<header><h1>Limits</h1></header>
${all.map(
  ({ limit, hours }) => html`<section>
<h2><a href="?limit=${encodeURIComponent(limit.name)}">${limit.name}</a></h2>
${denials(limit, hours)}
</section>`,
)}`,
  )
}

/** A limit and its keys. */
export function limitPage(
  { limit, hours }: Overview,
  lists: { readonly used: readonly (KeyUsage | OtherUsage)[]; readonly denied: readonly DeniedKey[] },
  looking: Looking,
  notice: string | undefined,
): string {
  const { used, denied } = lists
  return page(
    limit.name,
    html`${heading(limit)}
${notice === undefined ? undefined : html`<p class="done" role="status">${notice}</p>`}
${denials(limit, hours)}
${search(limit, looking)}
<form method="post">${hidden(looking)}
<h2>Used most</h2>
${
  used.length === 0
    ? html`<p class="faint">No key has used anything.</p>`
    : html`<table><thead><tr><th>Key</th><th></th><th>Used</th><th>Left</th><th>Limit</th><th>Full in</th></tr></thead>
<tbody>${used.map((each) => usedRow(each, looking.now))}</tbody></table>`
}
${
  limit.isCounted
    ? html`<h2>Denied most, in a day</h2>
${
  denied.length === 0
    ? html`<p class="faint">No key was denied.</p>`
    : html`<table><thead><tr><th>Key</th><th>Denials</th></tr></thead>
<tbody>${denied.map(({ key, denials: count }) => html`<tr><td>${keyButton(key)}</td><td>${inDigits(count)}</td></tr>`)}</tbody></table>`
}`
    : undefined
}
</form>`,
  )
}

/** A key of a limit. */
export function keyPage(
  { limit, hours }: Overview,
  key: string,
  { used, remaining, limit: most, reset, blockedUntil }: Usage,
  looking: Looking,
): string {
  const { allow, now } = looking
  return page(
    `A key of ${limit.name}`,
    html`${heading(limit)}
<p>${limit.isHashed ? 'The hash of the key' : 'The key'}: <code id="key">${key}</code></p>
<table><thead><tr><th>Used</th><th></th><th>Left</th><th>Limit</th><th>Full in</th></tr></thead>
<tbody><tr><td>${inDigits(used)}</td><td>${meter(used, most)}</td><td>${inDigits(remaining)}</td>
<td>${inDigits(most)}</td><td>${inTime(reset, now)}</td></tr></tbody></table>
${blockedUntil === undefined ? undefined : html`<p class="failed">${blockedFor(blockedUntil, now)}</p>`}
${
  allow.includes('reset') && !limit.isPrepaid && !limit.isLockout
    ? html`<form method="post" class="line">${hidden(looking, key)}
<button class="act" name="do" value="reset">Reset: the whole limit again</button></form>`
    : undefined
}
${
  allow.includes('grant') && limit.isPrepaid
    ? html`<form method="post" class="line">${hidden(looking, key)}
<label>Credits <input name="amount" inputmode="numeric" required pattern="[0-9]+"></label>
<button class="act" name="do" value="grant">Grant</button></form>`
    : undefined
}
${
  allow.includes('block') && limit.isBlockable
    ? html`<form method="post" class="line">${hidden(looking, key)}
<label>For <input name="duration" value="1h" required pattern="[0-9]+ ?(ms|s|m|h|d)"></label>
<button class="act" name="do" value="block">Block</button></form>
<form method="post" class="line">${hidden(looking, key)}
<button class="act" name="do" value="unblock">${limit.isLockout ? 'Unblock, and forget its failures' : 'Unblock'}</button></form>`
    : undefined
}
${denials(limit, hours)}
${search(limit, looking)}`,
  )
}

/** Something that went wrong. */
export function failurePage(message: string): string {
  return page(
    'Limits',
    html`<header><h1><a href="?">Limits</a></h1></header><p class="failed" role="alert">${message}</p>`,
  )
}

function heading(limit: Limit): Html {
  return html`<header><h1><a href="?">Limits</a> / <a href="?limit=${encodeURIComponent(limit.name)}">${limit.name}</a></h1>
<small>Prefix <code>${limit.prefix}</code></small></header>`
}

function denials(limit: Limit, hours: readonly DeniedHour[]): Html {
  if (!limit.isCounted)
    return html`<p class="faint">Denials are not counted: the limiter does not use <code>countDenials</code>.</p>`
  const sum = hours.reduce((before, each) => before + each.denials, 0)
  const bars = hours.map(({ start, denials: count }) => ({
    name: `${new Date(start).toISOString().slice(11, 16)}`,
    count,
  }))
  return html`<p>${inDigits(sum)} denials in the last ${hours.length} hours (UTC)</p>
${chart(bars, `Denials of ${limit.name} in each of the last ${hours.length} hours`)}`
}

function usedRow(each: KeyUsage | OtherUsage, now: number): Html {
  const { key, used, blockedUntil } = each
  const block =
    blockedUntil === undefined ? undefined : html` <small>${blockedFor(blockedUntil, now)}</small>`
  if (each.isOther)
    return html`<tr><td>${keyButton(key)}${block}</td><td></td><td>${inDigits(used)}</td><td colspan="3">another plan</td></tr>`
  return html`<tr><td>${keyButton(key)}${block}</td><td>${meter(used, each.limit)}</td><td>${inDigits(used)}</td>
<td>${inDigits(each.remaining)}</td><td>${inDigits(each.limit)}</td><td>${inTime(each.reset, now)}</td></tr>`
}

function blockedFor(until: number, now: number): string {
  return `Blocked for ${inTime(until, now)}, until ${new Date(until).toISOString()}`
}

function meter(used: number, limit: number): Html {
  if (!Number.isFinite(limit)) return html``
  // The colour warns above four fifths, and again when nothing is left.
  const most = Math.max(limit, 1)
  return html`<meter min="0" max="${most}" low="${0.8 * most}" high="${0.999 * most}" optimum="0" value="${used}" aria-label="Used"></meter>`
}

/** Opens a key. The form is posted, so the key is in no URL and in no access log. */
function keyButton(key: string): Html {
  return html`<button class="key" name="stored" value="${inField(key)}">${key}</button>`
}

function search(limit: Limit, looking: Looking): Html {
  return html`<form method="post" class="line">${hidden(looking)}
<label>Find a key <input name="key" required autocomplete="off"></label><button class="act">Look</button>
${limit.isHashed ? html`<small>The page searches for its hash.</small>` : undefined}</form>`
}

/** A key as a form has it. Browsers send each line break as two characters, so it must have none. */
function inField(key: string): string {
  return encodeURIComponent(key)
}

/** The key of a field. Undefined if no page has made the field. */
export function keyIn(field: string): string | undefined {
  try {
    return decodeURIComponent(field)
  } catch {
    return undefined
  }
}

function hidden({ token }: Looking, key?: string): Html {
  return html`<input type="hidden" name="token" value="${token}">${
    key === undefined ? undefined : html`<input type="hidden" name="stored" value="${inField(key)}">`
  }`
}
