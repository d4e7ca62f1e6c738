import { RatelimitError } from '../kernel/errors.ts'
import { denialsIn } from '../reports/denied.ts'
import type { Act, Held, Holding, ShownKey } from '../shared/shown.ts'
import { type DenialTimes, deniedCharts } from './denials.ts'
import { actForms, type FormTarget } from './forms.ts'
import { heldCells, heldColumns, SHOWN } from './held.ts'
import { type Html, html } from './html.ts'
import { type Looking, pageWith } from './layout.ts'
import type { Limit } from './limit.ts'
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
  readonly acts: readonly Act[]
  /** Why its rows could not be read. */
  readonly error?: string
}

/** A key in all limits. Those where it has a row come first. */
export async function keyPage(
  {
    key,
    limits,
    above,
    said,
  }: {
    readonly key: NamedKey
    readonly limits: readonly Limit[]
    readonly above: Limit | undefined
    /** What has changed just now. */
    readonly said: string | undefined
  },
  asking: FormTarget,
  looking: Looking,
): Promise<string> {
  const withOthers = heldTogether(limits, looking.now)
  const all = limits.map(async (limit) => {
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
${ordered.map((each, place) => ofLimit(each, place, asking, looking))}
${
  unseen.length === 0
    ? undefined
    : html`<section aria-labelledby="unseen"><h2 id="unseen">No row</h2>
<p>Here the key has used nothing, or what it had used has expired:</p>${unseen.map((each) => unseenOf(each, asking))}</section>`
}`,
    looking,
  )
}

function isSeen({ shown, held, denials, error }: Known): boolean {
  const isDenied = denials !== undefined && denialsIn(denials.hours) > 0
  return error !== undefined || shown !== undefined || held.length > 0 || isDenied
}

/** What one limit cannot read does not hide the others. */
async function knownOf(
  limit: Limit,
  { text, hashedBy }: NamedKey,
  looking: Looking,
  withOthers: HeldTogether,
): Promise<Known> {
  try {
    const key = hashedBy === undefined ? await limit.stored(text) : text
    const now = await limit.now()
    const shown = await limit.look(key, now)
    const held: [Holding, readonly Held[]][] = []
    for (const holding of await limit.holdings()) {
      const found = await holding.list({ key, size: SHOWN, now })
      if (found.length > 0) held.push([holding, await withOthers(limit, holding, found)])
    }
    const rule = await limit.rule(now, (time) => looking.times.short(time), key)
    return { limit, now, rule, shown, held, denials: await limit.denials(now, key), acts: await limit.acts() }
  } catch (error) {
    if (!(error instanceof RatelimitError)) throw error
    const nothing = { now: looking.now, rule: '', shown: undefined, held: [], denials: undefined, acts: [] }
    return { limit, ...nothing, error: `${error.code}: ${error.message}` }
  }
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
  place: number,
  asking: FormTarget,
  looking: Looking,
): Html {
  const { name } = limit
  if (error !== undefined) {
    return html`<section aria-labelledby="limit-${place}"><h2 id="limit-${place}">${name}</h2>
<p class="failed">${error}</p></section>`
  }
  const ofHeld = (holding: Holding) => acts.filter(({ of }) => of === holding.name)
  return html`<section aria-labelledby="limit-${place}"><h2 id="limit-${place}">${name}</h2>
${denials && deniedCharts(denials, looking.times)}
${held.map(([holding, found]) => {
  const own = ofHeld(holding).filter(({ needs }) => asking.allow.includes(needs))
  const columns = heldColumns(holding, found)
  return html`<h3>${holding.title}</h3>${table(
    own.length === 0 ? columns : [...columns, { name: 'Change' }],
    found.map((each) => [
      ...heldCells(each, holding, found, now, looking),
      ...(own.length === 0 ? [] : [actForms(own, limit, asking, each.name)]),
    ]),
  )}`
})}
${acts.length === 0 ? undefined : actForms(mayDo(acts, shown), limit, asking)}</section>`
}

function unseenOf({ limit, acts, shown }: Known, asking: FormTarget): Html {
  const forms = mayDo(acts, shown).filter(({ needs }) => asking.allow.includes(needs))
  if (forms.length === 0) return html`<p>${limit.name}</p>`
  return html`<details><summary>${limit.name}</summary>${actForms(forms, limit, asking)}</details>`
}

function mayDo(acts: readonly Act[], shown: ShownKey | undefined): Act[] {
  return acts.filter(({ of, isFor }) => of === undefined && (!isFor || isFor(shown)))
}
