import { denialsIn } from '../reports/denied.ts'
import { counted, inDigits } from '../shared/readable.ts'
import { sparkline } from './chart.ts'
import { barsOf, type DenialTimes, deniedNow, NOW_MINUTES, whenDenied } from './denials.ts'
import { type Html, html } from './html.ts'
import { href, type Looking, pageWith } from './layout.ts'
import { type Limit, orFault } from './limit.ts'
import { searchForm } from './search.ts'
import { type Cell, table } from './table.ts'

/** A limit as the overview shows it. */
interface OverviewRow {
  readonly limit: Limit
  readonly rule: string
  readonly full: number
  readonly isCut: boolean
  /** What keys hold: the title and the number. */
  readonly held: readonly (readonly [title: string, count: number])[]
  /** Undefined if they are not counted. */
  readonly denials: DenialTimes | undefined
  /** Why its rows could not be read. */
  readonly error?: string
}

/** More are not counted here. */
const MOST = 100

/** All limits, those with most trouble first. */
export async function overviewPage(looking: Looking): Promise<string> {
  const rows = (await Promise.all(looking.limits.map((limit) => readRow(limit, looking)))).toSorted(byTrouble)
  const most = Math.max(0, ...rows.flatMap(({ denials }) => denials?.hours.map((hour) => hour.denials) ?? []))
  const columns = [
    { name: 'Limit' },
    { name: 'At their limit now' },
    { name: `Denied in ${NOW_MINUTES} min` },
    { name: 'Denied this hour' },
    { name: 'Denied in 24 h' },
    { name: 'Held now', isText: true },
  ] as const
  const hasCounts = rows.some(({ limit }) => limit.isCounted)
  return pageWith(
    { title: 'Limits', head: html`<h1>Limits</h1>`, above: 'top' },
    html`${searchForm(undefined, looking)}
<h2>${counted(rows.length, 'limit')}, those with most trouble first</h2>
${table(
  columns,
  rows.map((row) => cells(row, most, looking)),
)}
<p class="faint">${most > 0 ? html`The bars have one scale: the highest is ${counted(most, 'denial')} in an hour. ` : undefined}${hasCounts ? undefined : html`Give limiters <code>use: [countDenials()]</code> to see what they deny. `}Outages are those that this process has seen.</p>`,
    looking,
  )
}

function readRow(limit: Limit, { times }: Looking): Promise<OverviewRow> {
  const read = async (): Promise<OverviewRow> => {
    const now = await limit.now()
    const rule = await limit.rule(now, (time) => times.short(time))
    const { full, cut } = await limit.keys({ part: '', offset: 0, size: 1, now })
    const blocked = await limit.blocked(now, MOST + 1)
    const held: [string, number][] = blocked ? [['Blocked', blocked.length]] : []
    for (const { title, list } of await limit.holdings()) {
      held.push([title, (await list({ size: MOST + 1, now })).length])
    }
    return { limit, rule, full, isCut: cut !== undefined, held, denials: await limit.denials(now) }
  }
  const nothing = { limit, rule: '', full: 0, isCut: false, held: [], denials: undefined }
  return orFault(read, (error) => ({ ...nothing, error }))
}

function trouble({ limit: { checker }, full, denials, error }: OverviewRow): readonly number[] {
  const { circuit } = checker
  return [
    Number(error !== undefined || circuit.isOpen),
    denials ? deniedNow(denials) : 0,
    denials?.hours.at(-1)?.denials ?? 0,
    full,
    denials ? denialsIn(denials.hours) : 0,
    circuit.degraded ?? 0,
  ]
}

function byTrouble(one: OverviewRow, other: OverviewRow): number {
  const [own, others] = [trouble(one), trouble(other)]
  const place = own.findIndex((each, at) => each !== others[at])
  return (others[place] ?? 0) - (own[place] ?? 0)
}

function cells(row: OverviewRow, most: number, looking: Looking): Cell[] {
  const { limit, rule, full, isCut, held, error } = row
  const first = html`<a href="${href({ limit: limit.name })}">${limit.name}</a><small>${rule}</small>${outageOf(limit, error)}`
  if (error !== undefined) return [first]
  const shown = held.filter(([, count]) => count > 0)
  return [
    first,
    number(full, isCut),
    ...deniedCells(row, most, looking),
    shown.length === 0
      ? undefined
      : html`<span>${shown.map(([title, count]) => html`<span class="held">${title}: ${count > MOST ? `${MOST}+` : count}</span>`)}</span>`,
  ]
}

function deniedCells({ limit, denials }: OverviewRow, most: number, { times }: Looking): Cell[] {
  if (!denials) return [limit.canCount ? NOT_COUNTED : undefined, undefined, undefined]
  const day = denialsIn(denials.hours)
  const title = `Denials of ${limit.name} in each of 24 hours, ${inDigits(day)} in all`
  const when = whenDenied(denials, times)
  return [
    html`<span>${number(deniedNow(denials))}${when === undefined ? undefined : html`<small>${when}</small>`}</span>`,
    number(denials.hours.at(-1)?.denials ?? 0),
    html`<span>${day > 0 ? sparkline(barsOf(denials.hours, times), most, title) : undefined}${inDigits(day)}</span>`,
  ]
}

const NOT_COUNTED = html`<span class="faint">not counted</span>`

function number(count: number, isCut = false): Html {
  return html`<span class="${count > 0 ? 'bad' : 'faint'}">${inDigits(count)}${isCut ? '+' : ''}</span>`
}

/** What this process knows of an outage. */
export function outageOf({ checker: { circuit } }: Limit, error?: string): Html {
  const { degraded: answered = 0 } = circuit
  return html`${error === undefined ? undefined : html`<span class="bad">${error}</span> `}${circuit.isOpen ? html`<span class="bad">The database did not answer the last calls of this process. One at a time tries again, and the others fail at once or get the answer of onError.</span> ` : undefined}${
    answered === 0
      ? undefined
      : html`<span class="near">onError has answered ${counted(answered, 'call')} since this process began.</span>`
  }`
}
