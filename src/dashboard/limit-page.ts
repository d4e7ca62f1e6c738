import { denialsIn } from '../reports/denied.ts'
import { HOUR, MINUTE } from '../shared/denied-rows.ts'
import { inDigits } from '../shared/readable.ts'
import { type DenialTimes, deniedCharts, deniedNow, NOW_MINUTES } from './denials.ts'
import { heldTable, SHOWN } from './held.ts'
import { type Html, html } from './html.ts'
import { href, hrefWith, type Looking, pageOf, pageWith, section } from './layout.ts'
import type { Limit } from './limit.ts'
import { keyLink } from './links.ts'
import { outageOf } from './overview.ts'
import { searchForm } from './search.ts'
import { MAX_SEARCHED } from './sql/keys.ts'
import { PAGE, pageOrLast, pager, table } from './table.ts'
import { heldTogether } from './together.ts'
import { USAGE, usageCells } from './usage.ts'

/** How far back denials are listed. The shortest time that has some is shown, unless another one is chosen. */
const SINCE = [
  ['now', `${NOW_MINUTES} minutes`, (NOW_MINUTES - 1) * MINUTE.ms, deniedNow],
  ['hour', '60 minutes', 59 * MINUTE.ms, ({ minutes }: DenialTimes) => denialsIn(minutes)],
  ['day', '24 hours', 23 * HOUR.ms, ({ hours }: DenialTimes) => denialsIn(hours)],
  ['week', '7 days', 167 * HOUR.ms, () => 0],
] as const

/** A limit: who is denied, who is near the limit, who is blocked, and what keys hold. */
export async function limitPage(limit: Limit, part: string, looking: Looking): Promise<string> {
  const { times } = looking
  const now = await limit.now()
  const rule = await limit.rule(now, (time) => times.short(time))
  return pageWith(
    {
      title: limit.name,
      head: html`<h1>${limit.name}</h1><p>${rule}</p><p class="faint">Prefix <code>${limit.prefix}</code></p>`,
    },
    html`<p>${outageOf(limit)}</p>
${searchForm(limit, looking)}
${await denied(limit, part, now, looking)}
${await nearest(limit, part, now, looking)}
${part === '' ? await blocked(limit, now, looking) : undefined}
${part === '' ? await holdings(limit, now, looking) : undefined}`,
    looking,
  )
}

async function denied(limit: Limit, part: string, now: number, looking: Looking): Promise<Html | undefined> {
  const denials = await limit.denials(now)
  if (!denials) {
    if (!limit.canCount || part !== '') return undefined
    return html`<p class="faint">Denials are not counted. Give the limiter <code>use: [countDenials()]</code> to see whom it denies.</p>`
  }
  const { times, asked } = looking
  const chosen = SINCE.find(([name]) => name === asked.get('since'))
  // What is searched may have been denied at another time than others.
  const first = part === '' ? SINCE.find(([, , , sum]) => sum(denials) > 0) : undefined
  const [since, , back] = chosen ?? first ?? SINCE[3]
  const { keys, total, page } = await pageOrLast(pageOf(looking, 'denied'), (offset) =>
    limit.denied({ now, from: now - back, part, top: PAGE, offset }),
  )
  if (part !== '' && keys.length === 0 && !chosen) return undefined
  const choices = SINCE.map(([name, words]) =>
    name === since
      ? html` <strong>${words}</strong>`
      : html` <a href="${hrefWith(looking, { since: name, denied: '' })}#denied">${words}</a>`,
  )
  const rows = await Promise.all(
    keys.map(async ({ key, denials }) => [await keyLink(limit, key, looking), inDigits(denials)]),
  )
  const list = html`${table([{ name: 'Key' }, { name: 'Denials' }], rows)}
${pager(page, total, (to) => `${hrefWith(looking, { denied: to })}#denied`)}`
  return section(
    'denied',
    'Denied most',
    html`${part === '' ? deniedCharts(denials, times) : undefined}
<p>Keys ${part === '' ? undefined : html`with <code>${part}</code> `}denied in${choices}</p>
${rows.length === 0 ? html`<p class="faint">No key was denied.</p>` : list}`,
  )
}

async function nearest(limit: Limit, part: string, now: number, looking: Looking): Promise<Html> {
  const { keys, total, full, cut, page } = await pageOrLast(pageOf(looking, 'page'), (offset) =>
    limit.keys({ part, offset, size: PAGE, now }),
  )
  const rows = await Promise.all(
    keys.map(async (each) => [await keyLink(limit, each.key, looking), ...usageCells(each, now, looking)]),
  )
  const [more, among] = cut === undefined ? ['', ''] : [' or more', ` Only ${cut} were read.`]
  const most = `${inDigits(total)}${more}`
  const searched = `A search looks through the first ${inDigits(MAX_SEARCHED)} keys.`
  const allKeys = html`<a href="${href({ limit: limit.name })}">All keys</a>`
  const [title, about, none] =
    part === ''
      ? [
          'Nearest to the limit',
          html`${inDigits(full)}${more} of ${most} keys that have used something have nothing left.${among}`,
          html`No key has used anything yet. Keys appear here with their first call.`,
        ]
      : [
          'Found',
          html`Of ${limit.isHashed ? 'hashes' : 'keys'} with <code>${part}</code>, ${most} have used something.${among} ${searched} ${allKeys}`,
          html`No ${limit.isHashed ? 'hash' : 'key'} with <code>${part}</code> has used anything. ${searched} ${allKeys}`,
        ]
  if (rows.length === 0) return section('keys', title, html`<p class="faint">${none}</p>`)
  const pages = pager(page, total, (to) => `${hrefWith(looking, { page: to })}#keys`, cut !== undefined)
  return section('keys', title, html`<p>${about}</p>${table([{ name: 'Key' }, ...USAGE], rows)}${pages}`)
}

async function blocked(limit: Limit, now: number, looking: Looking): Promise<Html | undefined> {
  const found = await limit.blocked(now, SHOWN)
  if (!found) return undefined
  const holding = { name: 'blocked', title: 'Blocked now', columns: [undefined, undefined] } as const
  return heldTable(limit, holding, found, now, looking)
}

async function holdings(limit: Limit, now: number, looking: Looking): Promise<Html[]> {
  const all = await limit.holdings()
  const withOthers = heldTogether(looking.limits, now)
  return Promise.all(
    all.map(async (holding) => {
      const found = await withOthers(limit, holding, await holding.list({ size: SHOWN, now }))
      return heldTable(limit, holding, found, now, looking)
    }),
  )
}
