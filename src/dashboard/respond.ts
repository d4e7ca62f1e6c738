import type { DashboardWrite } from '../shared/shown.ts'
import { confirmPage, faultIn, heldIn } from './forms.ts'
import { keyPage } from './key-page.ts'
import { failurePage, href, type Looking } from './layout.ts'
import type { Limit } from './limit.ts'
import { limitPage } from './limit-page.ts'
import { idOf, keyOf, type NamedKey } from './links.ts'
import { overviewPage } from './overview.ts'
import type { Seals } from './seal.ts'
import { HASH } from './search.ts'
import { Times } from './times.ts'
import { isToken, tokenFor } from './token.ts'

/** A person who may see the page. */
export interface DashboardViewer {
  /** Distinguishes viewers: a form of one is refused from another. For example the user's id. */
  readonly id: string
  /** The changes that the viewer may make. Default: none. */
  readonly allow?: readonly DashboardWrite[]
  /** The IANA time zone of the times that the viewer sees. Default: `'UTC'`. */
  readonly timeZone?: string | undefined
}

/** A change that a viewer has made. */
export interface DashboardAction {
  /** The same if a form was sent again: a change may be handed on twice. */
  readonly id: string
  /** What was done: `reset`, `block`, `unblock`, `grant`, `take back`, `settle` or `release`. */
  readonly action: string
  /** The limiter's namespace. */
  readonly prefix: string
  /** The key as it is stored: with `hashKeys`, the hash. */
  readonly key: string
  /** The `id` of the viewer. */
  readonly by: string
  /** What has changed, in words. */
  readonly change: string
}

/** A request of a viewer, and what the page is made of. */
export interface PageRequest {
  readonly request: Request
  readonly viewer: DashboardViewer
  readonly limits: ReadonlyMap<string, Limit>
  readonly seals: Seals
  readonly onAction: ((action: DashboardAction) => unknown) | undefined
}

/** An answer: a page, or the address to go to. */
export type Answer =
  | { readonly status: number; readonly page: string; readonly allow?: string }
  | { readonly location: string }

/** The longest body of a form: a key has at most a kilobyte, but a key to hash may be longer. */
const MAX_BODY = 64_000

/** Postgres stores and compares no text with it. */
const NUL = '\0'

export async function respond(asked: PageRequest): Promise<Answer> {
  const { request, viewer, limits, seals } = asked
  const { searchParams } = new URL(request.url)
  const name = searchParams.get('limit')
  const limit = limits.get(name ?? '')
  if (name !== null && !limit) return refused(404, 'There is no such limit.')
  if (request.method === 'POST') return posted(asked, limit)
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    return { ...refused(405, 'Only GET and POST.'), allow: 'GET, HEAD, POST' }
  }
  const now = Date.now()
  const times = new Times(viewer.timeZone ?? 'UTC', now)
  const [shown, token] = [[...limits.values()], await tokenFor(viewer.id, seals)]
  const allow = viewer.allow ?? []
  const looking: Looking = { limits: shown, times, now, asked: searchParams, seals, token, allow }
  const [given, id] = [searchParams.get('key'), searchParams.get('id')]
  // A link of the application has the key as it is. No address of the page has it.
  if (given !== null) return openedKey({ text: given }, limit, seals)
  if (id !== null) {
    const key = await keyOf(id, seals)
    if (!key) return refused(404, 'This address names no key. It may be of another secret.')
    const said = await seals.open('said', searchParams.get('said'))
    return shownAs(await keyPage(key, id, limit, said, looking))
  }
  if (!limit) return shownAs(await overviewPage(looking))
  const part = (await seals.open('part', searchParams.get('part'))) ?? ''
  return shownAs(await limitPage(limit, part, looking))
}

/** The address of a key that was given as it is. */
async function openedKey(key: NamedKey, limit: Limit | undefined, seals: Seals): Promise<Answer> {
  if (key.text === '' || key.text.includes(NUL)) return refused(400, 'Which key?')
  return { location: href({ limit: limit?.name, id: await idOf(key, seals) }) }
}

/** Answers a form: it finds keys, asks whether to do something, or does it. */
async function posted(asked: PageRequest, limit: Limit | undefined): Promise<Answer> {
  const { request, viewer, seals } = asked
  const form = await formOf(request)
  const site = request.headers.get('sec-fetch-site') ?? 'same-origin'
  const isOwn = site === 'same-origin' && (await isToken(form?.get('token') ?? null, viewer.id, seals))
  if (!form || !isOwn) {
    return refused(403, 'This form is too old, or is not of this page. Load the page again.')
  }
  const [action, typed] = [form.get('do'), form.get('key') ?? '']
  if (action === 'search' && limit) {
    if (typed.includes(NUL)) return refused(400, 'No key has such a part.')
    // A key that was denied only is in no list.
    if (limit.isHashed && HASH.test(typed))
      return openedKey({ text: typed, hashedBy: await limit.hashedBy() }, limit, seals)
    return { location: href({ limit: limit.name, part: await seals.seal('part', typed) }) }
  }
  if (action === 'open') return openedKey({ text: typed }, limit, seals)
  return limit ? acted(asked, limit, form) : refused(404, 'Which limit?')
}

async function acted(asked: PageRequest, limit: Limit, form: URLSearchParams): Promise<Answer> {
  const { viewer, seals, onAction } = asked
  const id = form.get('id') ?? ''
  const named = await keyOf(id, seals)
  const isOther = named?.hashedBy !== undefined && named.hashedBy !== (await limit.hashedBy())
  if (!named || isOther) return refused(400, 'The form has no valid key.')
  const act = (await limit.acts()).find(({ name }) => name === form.get('do'))
  if (!act || !viewer.allow?.includes(act.needs)) return refused(403, 'You may not do this.')
  const key = named.hashedBy === undefined ? await limit.stored(named.text) : named.text
  const held = heldIn(form.get('held'))
  const once = form.get('once') ?? crypto.randomUUID()
  const given = Object.fromEntries(act.fields.map(({ name }) => [name, form.get(name) ?? '']))
  const values = { ...given, ...(held === undefined ? {} : { held }), once }
  const fault = act.fields.map((field) => faultIn(field, values)).find((each) => each !== undefined)
  if (fault !== undefined) return refused(400, fault)
  if (!form.has('sure')) {
    const target = { token: await tokenFor(viewer.id, seals), id }
    return shownAs(confirmPage(act, limit, key, values, target))
  }
  const { change, now } = await act.run(key, values)
  if (change !== undefined) {
    await onAction?.({ id: once, action: act.name, prefix: limit.prefix, key, by: viewer.id, change })
  }
  // A page that is loaded again must not do it again.
  const said = await seals.seal('said', `${limit.name}, ${key}: ${[change, now].filter(Boolean).join(' ')}`)
  return { location: href({ limit: limit.name, id, said }) }
}

/** The fields of a form. Undefined for another kind of body, or for one that is too long. */
async function formOf(request: Request): Promise<URLSearchParams | undefined> {
  const type = request.headers.get('content-type') ?? ''
  if (!type.startsWith('application/x-www-form-urlencoded')) return undefined
  if (Number(request.headers.get('content-length') ?? 0) > MAX_BODY) return undefined
  const text = await request.text()
  return text.length > MAX_BODY ? undefined : new URLSearchParams(text)
}

function shownAs(page: string): Answer {
  return { status: 200, page }
}

function refused(status: number, message: string) {
  return { status, page: failurePage(message) }
}
