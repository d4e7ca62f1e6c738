import { type DeniedIn, denialsIn, type deniedOver } from '../reports/denied.ts'
import { HOUR } from '../shared/denied-rows.ts'
import { counted, inDigits } from '../shared/readable.ts'
import { type Bar, chart } from './chart.ts'
import { type Html, html } from './html.ts'
import type { Times } from './times.ts'

/** The denials of a limit, or of one of its keys, in each of the last 24 hours and 60 minutes. */
export type DenialTimes = Awaited<ReturnType<typeof deniedOver>>

/** How many minutes are now. */
export const NOW_MINUTES = 5

/** The denials of the last minutes. */
export function deniedNow({ minutes }: DenialTimes): number {
  return denialsIn(minutes.slice(-NOW_MINUTES))
}

/** Since when calls are denied, if they still are, or when the last one was. Undefined if none was. */
export function whenDenied(denials: DenialTimes, times: Times): string | undefined {
  const { hours, minutes } = denials
  const lastHour = hours.findLast(isDenied)
  if (!lastHour) return undefined
  const at = (time: number) => times.near(time, minutes.at(-1)?.start ?? time)
  if (deniedNow(denials) > 0) {
    const before = hours.findLastIndex((hour) => hour.start < lastHour.start && !isDenied(hour))
    if (before < 0) return 'for a day or longer'
    return `since ${at(hours[before + 1]?.first ?? lastHour.start)}`
  }
  const last = minutes.findLast(isDenied)
  if (last) return `last at ${at(last.start)}`
  return `last between ${at(lastHour.start)} and ${times.hour(lastHour.start + HOUR.ms)}`
}

function isDenied({ denials }: DeniedIn): boolean {
  return denials > 0
}

export function barsOf(all: readonly DeniedIn[], times: Times): Bar[] {
  return all.map(({ start, denials }) => ({ name: times.hour(start), count: denials }))
}

/** How many were denied, since when, and charts of that. */
export function deniedCharts(denials: DenialTimes, times: Times): Html {
  const { hours, minutes } = denials
  const [day, hour, now] = [denialsIn(hours), denialsIn(minutes), deniedNow(denials)]
  if (day === 0) return html`<p class="faint">Not denied in the last 24 hours.</p>`
  const [ofDay, ofHour] = [
    `${counted(day, 'denial')} in the last 24 hours`,
    `${counted(hour, 'denial')} in the last 60 minutes`,
  ]
  const when = whenDenied(denials, times)
  return html`<p>${now > 0 ? html`<strong class="bad">Denied ${when}.</strong>` : html`Not denied now, ${when}.`}
${inDigits(now)} in the last ${NOW_MINUTES} minutes, ${inDigits(hours.at(-1)?.denials ?? 0)} this hour.</p>
<div class="charts">${hour > 0 ? chart(barsOf(minutes, times), ofHour) : undefined}${chart(barsOf(hours, times), ofDay)}</div>`
}
