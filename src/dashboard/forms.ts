import type { Act, Field, FieldValues } from '../shared/shown.ts'
import { type Html, html } from './html.ts'
import { href, type Looking, pageWith } from './layout.ts'
import type { Limit } from './limit.ts'

/** A key as forms and addresses name it. */
interface Target extends Pick<Looking, 'token'> {
  readonly id: string
}

/** A form for each of the acts: to the key, or to something that it holds. */
export function actForms(acts: readonly Act[], limit: Limit, { token, id }: Target, held?: string): Html {
  const forms = acts.map(
    (
      act,
    ) => html`<form method="post" class="line" action="${href({ limit: limit.name })}">${hidden({ token, id, held })}
${act.fields.map(fieldOf)}<button name="do" value="${act.name}">${act.label}</button>
${held === undefined ? html`<small>${act.about}</small>` : undefined}</form>`,
  )
  return held === undefined ? html`<div class="acts">${forms}</div>` : html`<div>${forms}</div>`
}

function fieldOf({ name, label, of }: Field): Html {
  if (typeof of === 'string')
    return html`<label>${label}<br><input name="${name}" inputmode="numeric" required pattern="[0-9]+" autocomplete="off"></label>`
  return html`<label>${label}<br><select name="${name}">${of.map(([value, words]) => html`<option value="${value}">${words}</option>`)}</select></label>`
}

/** What a form names of what the key holds. Undefined if no page has written it. */
export function heldIn(written: string | null): string | undefined {
  try {
    return written === null ? undefined : decodeURIComponent(written)
  } catch {
    return undefined
  }
}

/** Why a value is none of the field. Undefined if it is one. */
export function faultIn(
  { name, label, of }: Field,
  values: Readonly<Record<string, string>>,
): string | undefined {
  const value = values[name] ?? ''
  if (typeof of !== 'string') {
    return of.some(([each]) => each === value) ? undefined : `${label}: choose one of the list.`
  }
  const isWhole = /^\d+$/.test(value) && Number.isSafeInteger(Number(value))
  if (isWhole && (of === 'cost' || Number(value) > 0)) return undefined
  return `${label}: a whole number${of === 'cost' ? ', or 0' : ' above 0'}.`
}

/** Asks once whether to do it. */
export function confirmPage(
  act: Act,
  limit: Limit,
  key: string,
  values: FieldValues,
  { token, id }: Target,
): string {
  const { held } = values
  const given = act.fields.map(({ name, label, of }) => {
    const value = values[name] ?? ''
    return html`<div><dt>${label}</dt><dd>${(typeof of === 'string' ? undefined : new Map(of).get(value)) ?? value}</dd></div>`
  })
  return pageWith(
    {
      title: `${act.label}?`,
      head: html`<h1>${act.label} <code>${key}</code> in ${limit.name}?</h1>`,
      above: limit,
    },
    html`<p>${act.about}</p>
${held === undefined && given.length === 0 ? undefined : html`<dl>${held === undefined ? undefined : html`<div><dt>Which</dt><dd><code>${held}</code></dd></div>`}${given}</dl>`}
<form method="post" class="line" action="${href({ limit: limit.name })}">${hidden({ token, id, ...values, sure: 'yes' })}
<button class="act" name="do" value="${act.name}" autofocus>Yes, ${act.label.toLowerCase()}</button> <a href="${href({ limit: limit.name, id })}">No, back</a></form>`,
  )
}

/** What the key holds is encoded: browsers change line breaks in the fields of a form. */
function hidden(fields: Readonly<Record<string, unknown>>): Html[] {
  const { token, id, held, ...values } = fields
  const encoded = typeof held === 'string' ? encodeURIComponent(held) : undefined
  return Object.entries({ token, id, held: encoded, ...values }).flatMap(([name, value]) =>
    typeof value === 'string' ? [html`<input type="hidden" name="${name}" value="${value}">`] : [],
  )
}
