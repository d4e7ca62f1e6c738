import { denialsIn } from '../reports/denied.ts'
import type { Act, Held, Holding, ShownKey } from '../shared/shown.ts'
import { type DenialTimes, deniedCharts } from './denials.ts'
import { actForms } from './forms.ts'
import { heldColumns, SHOWN } from './held.ts'
import { type Html, html } from './html.ts'
import { type Looking, pageWith, section } from './layout.ts'
import type { Limit } from './limit.ts'
import { orFault } from './limit.ts'
import type { NamedKey } from './links.ts'
import { table } from './table.ts'
import { type HeldTogether, heldTogether } from './together.ts'
import { USAGE, usageCells } from './usage.ts'

/** What a limit knows of a key. */
interface Known {
  readonly limit: Limit
  readonly now: number
  readonly rule: string
  readonly shown: ShownKey | undefined
  readonly held: readonly (readonly [Holding, readonly Held[]])[]
  readonly denials: DenialTimes | undefined
  /** What the viewer may do. */
  readonly acts: readonly Act[]
  /** Why its rows could not be read. */
  readonly error?: string
}

/**
 * A key in all limits. Those where it has a row come first.
 *
 * @param said What has changed just now.
 */
export async function keyPage(
  key: NamedKey,
  id: string,
  above: Limit | undefined,
  said: string | undefined,
  looking: Looking,
): Promise<string> {
  const withOthers = heldTogether(looking.limits, looking.now)
  const all = looking.limits.map(async (limit) => {
    // A hash is the key of limits that hash with the same secret, and tells nothing of the others.
    const isOther = key.hashedBy !== undefined && key.hashedBy !== (await limit.hashedBy())
    return isOther ? [] : [await knownOf(limit, key, looking, withOthers)]
  })
  const known = (await Promise.all(all)).flat()
  const first = ({ limit }: Known) => Number(limit === above)
  const [seen, unseen] = [known.filter(isSeen), known.filter((each) => !isSeen(each))]
  const ordered = seen.toSorted((one, other) => first(other) - first(one))
  return pageWith(
    {
      title: 'A key',
      head: html`<h1>${key.hashedBy === undefined ? undefined : 'The hash '}<code id="key">${key.text}</code></h1>`,
      above,
    },
    html`${said === undefined ? undefined : html`<p class="done" role="status">${said}</p>`}
${summary(ordered, looking)}
${ordered.map((each, place) => ofLimit(each, `limit-${place}`, id, looking))}
${unseen.length === 0 ? undefined : section('unseen', 'No row', html`<p>Here the key has used nothing, or what it had used has expired:</p>${unseen.map((each) => unseenOf(each, id, looking))}`)}`,
    looking,
  )
}

function isSeen({ shown, held, denials, error }: Known): boolean {
  const isDenied = denials !== undefined && denialsIn(denials.hours) > 0
  return error !== undefined || shown !== undefined || held.length > 0 || isDenied
}

function knownOf(
  limit: Limit,
  { text, hashedBy }: NamedKey,
  looking: Looking,
  withOthers: HeldTogether,
): Promise<Known> {
  const read = async (): Promise<Known> => {
    const key = hashedBy === undefined ? await limit.stored(text) : text
    const now = await limit.now()
    const shown = await limit.look(key, now)
    const held: [Holding, readonly Held[]][] = []
    for (const holding of await limit.holdings()) {
      const found = await holding.list({ key, size: SHOWN, now })
      if (found.length > 0) held.push([holding, await withOthers(limit, holding, found)])
    }
    const rule = await limit.rule(now, (time) => looking.times.short(time), key)
    const acts = (await limit.acts()).filter(({ needs }) => looking.allow.includes(needs))
    return { limit, now, rule, shown, held, denials: await limit.denials(now, key), acts }
  }
  const nothing = { now: looking.now, rule: '', shown: undefined, held: [], denials: undefined, acts: [] }
  return orFault(read, (error) => ({ limit, ...nothing, error }))
}

/** How much the key has used of each limit. */
function summary(all: readonly Known[], looking: Looking): Html {
  const rows = all.map(({ limit, rule, shown, now, error }, place) => [
    html`<a href="#limit-${place}">${limit.name}</a><small>${rule}</small>`,
    ...(shown ? usageCells(shown, now, looking) : [error === undefined ? html`no row` : html`not known`]),
  ])
  return rows.length === 0 ? html`` : table([{ name: 'Limit' }, ...USAGE], rows)
}

function ofLimit(
  { limit, now, shown, held, denials, acts, error }: Known,
  place: string,
  id: string,
  looking: Looking,
): Html {
  if (error !== undefined) return section(place, limit.name, html`<p class="failed">${error}</p>`)
  const target = { token: looking.token, id }
  const holdings = held.map(([holding, found]) => {
    const own = acts.filter(({ of }) => of === holding.name)
    const forms = [{ name: 'Change' }, ({ name }: Held) => actForms(own, limit, target, name)] as const
    const columns = [...heldColumns(holding, found, now, looking), ...(own.length === 0 ? [] : [forms])]
    return html`<h3>${holding.title}</h3>${table(
      columns.map(([column]) => column),
      found.map((each) => columns.map(([, cellOf]) => cellOf(each))),
    )}`
  })
  return section(
    place,
    limit.name,
    html`${denials && deniedCharts(denials, looking.times)}
${holdings}
${actForms(forKey(acts, shown), limit, target)}`,
  )
}

function unseenOf({ limit, acts, shown }: Known, id: string, { token }: Looking): Html {
  const own = forKey(acts, shown)
  if (own.length === 0) return html`<p>${limit.name}</p>`
  return html`<details><summary>${limit.name}</summary>${actForms(own, limit, { token, id })}</details>`
}

function forKey(acts: readonly Act[], shown: ShownKey | undefined): Act[] {
  return acts.filter(({ of, isFor }) => of === undefined && (!isFor || isFor(shown)))
}
