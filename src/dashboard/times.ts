import { RatelimitError } from '../kernel/errors.ts'
import { inTime } from '../shared/readable.ts'
import { type Html, html } from './html.ts'

/** Writes times for people in a zone. */
export class Times {
  /** The zone in words: `Central European Summer Time (Europe/Berlin)`. */
  readonly zone: string
  readonly #format: Intl.DateTimeFormat
  readonly #short: Intl.DateTimeFormat
  readonly #hour: Intl.DateTimeFormat
  readonly #day: Intl.DateTimeFormat

  /** @throws RatelimitError `INVALID_OPTION` for an unknown zone */
  constructor(timeZone: string, now: number) {
    try {
      this.#hour = new Intl.DateTimeFormat('en-GB', { timeZone, hour: '2-digit', minute: '2-digit' })
      this.#day = new Intl.DateTimeFormat('en-GB', { timeZone, day: 'numeric', month: 'short' })
      const of = { timeZone, dateStyle: 'medium' } as const
      this.#short = new Intl.DateTimeFormat('en-GB', { ...of, timeStyle: 'short' })
      this.#format = new Intl.DateTimeFormat('en-GB', { ...of, timeStyle: 'medium' })
      const named = new Intl.DateTimeFormat('en', { timeZone, timeZoneName: 'long' }).formatToParts(now)
      this.zone = `${named.find(({ type }) => type === 'timeZoneName')?.value ?? 'Times'} (${timeZone})`
    } catch {
      throw new RatelimitError('INVALID_OPTION', 'authorize has returned a timeZone that is not known.')
    }
  }

  /** `2 Mar 2026, 14:05:09` */
  at(time: number): string {
    return this.#format.format(time)
  }

  /** `2 Mar 2026, 14:05` */
  short(time: number): string {
    return this.#short.format(time)
  }

  /** `14:00` */
  hour(time: number): string {
    return this.#hour.format(time)
  }

  /** `14:00`, or of another day `2 Mar, 14:00` */
  near(time: number, now: number): string {
    const day = this.#day.format(time)
    return day === this.#day.format(now) ? this.hour(time) : `${day}, ${this.hour(time)}`
  }

  /** How long it is until a time, and the time. */
  until(time: number | undefined, now: number): Html {
    if (time === undefined) return html``
    if (!Number.isFinite(time) || time >= FAR) return html`never`
    return html`<time datetime="${new Date(time).toISOString()}">${time <= now ? 'now' : `in ${inTime(time, now)}`}<small>${this.at(time)}</small></time>`
  }

  /** How long ago a time was, and the time. */
  since(time: number | undefined, now: number): Html {
    if (time === undefined) return html``
    return html`<time datetime="${new Date(time).toISOString()}">${inTime(now, time)} ago<small>${this.at(time)}</small></time>`
  }
}

/** Dates end here. Rows that never end have such a time. */
const FAR = 8e15
