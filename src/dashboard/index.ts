import type { AnyCredits } from '../any-credits.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import { Limit, type PlannedLimit } from './limit.ts'
import {
  type DashboardWrite,
  failurePage,
  keyIn,
  keyPage,
  type Looking,
  limitPage,
  overviewPage,
} from './page.ts'
import { STYLE } from './style.ts'
import { Tokens } from './token.ts'

export type { DashboardWrite, PlannedLimit }

/** A person who may see the page. */
export interface DashboardViewer {
  /** Distinguishes viewers: a form of one is refused from another. For example the user's id. */
  readonly id: string
  /** The changes that the viewer may make. Default: none. */
  readonly allow?: readonly DashboardWrite[]
}

/** Options of `dashboard`. */
export interface DashboardOptions {
  /** The limits to show, by the names that the page gives them. */
  readonly limiters: Readonly<Record<string, Ratelimit | AnyCredits | PlannedLimit>>
  /**
   * Says who the viewer is, before anything else happens. If it returns nothing or `false`, the answer is 403.
   * If it returns a `Response`, such as a redirect to a login, that is the answer.
   */
  readonly authorize: (request: Request) => DashboardAnswer | Promise<DashboardAnswer>
  /** Signs the forms. At least 16 random characters, the same in all processes. */
  readonly secret: string
}

/** What `authorize` returns. */
export type DashboardAnswer = DashboardViewer | Response | false | null | undefined

const OPTION_NAMES: NamesOf<DashboardOptions> = { limiters: true, authorize: true, secret: true }

const MIN_SECRET = 16

/** The longest body of a form: a key has at most a kilobyte, but a key to hash may be longer. */
const MAX_BODY = 64_000

/** The permission that each button needs. */
const NEEDED: ReadonlyMap<string, DashboardWrite> = new Map([
  ['reset', 'reset'],
  ['grant', 'grant'],
  ['block', 'block'],
  ['unblock', 'block'],
])

const DONE: ReadonlyMap<string, string> = new Map([
  ['reset', 'The key has its whole limit again.'],
  ['grant', 'The credits were granted.'],
  ['block', 'The key is blocked.'],
  ['unblock', 'The key is not blocked any more.'],
])

/**
 * A page for operators, as a fetch handler: limits with their keys, what these have used and have left, which
 * keys are denied, and, if `authorize` allows it, resets, grants and blocks. Mount it at any path.
 *
 * It is rendered on the server and needs no scripts. No URL has a key in it. Each form is posted with a token.
 *
 * @throws RatelimitError `INVALID_OPTION`, also without `authorize`.
 *
 * @example
 * ```ts
 * import { dashboard } from 'drizzle-ratelimit/dashboard'
 * import { api } from './app.ts'
 *
 * declare function adminOf(request: Request): Promise<{ id: string } | undefined>
 *
 * export const handler = dashboard({
 *   limiters: { api },
 *   authorize: async (request) => {
 *     const admin = await adminOf(request)
 *     return admin && { id: admin.id, allow: ['reset'] }
 *   },
 *   secret: process.env.DASHBOARD_SECRET!,
 * })
 * ```
 */
export function dashboard(options: DashboardOptions): (request: Request) => Promise<Response> {
  checkOptions(options, OPTION_NAMES)
  const { limiters, authorize, secret } = options
  checkOption(
    typeof authorize === 'function',
    'The dashboard needs authorize, a function that says who may see it.',
  )
  checkOption(
    typeof secret === 'string' && secret.length >= MIN_SECRET,
    `secret must have at least ${MIN_SECRET} characters.`,
  )
  checkOption(
    typeof limiters === 'object' && limiters !== null && Object.keys(limiters).length > 0,
    'limiters must be an object with at least one limiter.',
  )
  const limits = new Map(Object.entries(limiters).map(([name, given]) => [name, new Limit(name, given)]))
  const tokens = new Tokens(secret)
  return async (request) => {
    const viewer = await authorize(request)
    if (viewer instanceof Response) return viewer
    if (!viewer) return answer(403, failurePage('You may not see this page.'))
    checkOption(typeof viewer.id === 'string' && viewer.id !== '', 'authorize must return an id.')
    try {
      const response = await respond({ request, viewer, limits, tokens })
      return request.method === 'HEAD' ? new Response(null, response) : response
    } catch (error) {
      if (!(error instanceof RatelimitError)) throw error
      return answer(
        error.code.startsWith('INVALID_') ? 400 : 503,
        failurePage(`${error.code}: ${error.message}`),
      )
    }
  }
}

interface Asked {
  readonly request: Request
  readonly viewer: DashboardViewer
  readonly limits: ReadonlyMap<string, Limit>
  readonly tokens: Tokens
}

async function respond(asked: Asked): Promise<Response> {
  const { request, viewer, limits, tokens } = asked
  const { searchParams } = new URL(request.url)
  const name = searchParams.get('limit')
  const limit = limits.get(name ?? '')
  if (name !== null && !limit) return answer(404, failurePage('There is no such limit.'))
  if (request.method === 'POST')
    return limit ? posted(asked, limit) : answer(404, failurePage('Which limit?'))
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    return answer(405, failurePage('Only GET and POST.'), { allow: 'GET, HEAD, POST' })
  }
  if (!limit) {
    const all = [...limits.values()].map(async (each) => ({ limit: each, hours: await hoursOf(each) }))
    return answer(200, overviewPage(await Promise.all(all)))
  }
  const looking = await lookingOf(viewer, tokens)
  const used = await limit.used()
  const denied = limit.isCounted ? await limit.denied() : []
  const notice = DONE.get(searchParams.get('done') ?? '')
  return answer(200, limitPage({ limit, hours: await hoursOf(limit) }, { used, denied }, looking, notice))
}

/** Answers a form: it shows a key, or changes it. */
async function posted({ request, viewer, tokens }: Asked, limit: Limit): Promise<Response> {
  const form = await formOf(request)
  const site = request.headers.get('sec-fetch-site') ?? 'same-origin'
  const isOwn = site === 'same-origin' && (await tokens.isValid(form?.get('token') ?? '', viewer.id))
  if (!form || !isOwn) {
    return answer(403, failurePage('This form is too old, or is not of this page. Load the page again.'))
  }
  const given = form.get('stored')
  const key = given === null ? await limit.stored(form.get('key') ?? '') : keyIn(given)
  if (key === undefined) return answer(400, failurePage('The form has no valid key.'))
  const write = form.get('do')
  if (write === null) {
    const looking = await lookingOf(viewer, tokens)
    const used = await limit.look(key)
    return answer(200, keyPage({ limit, hours: await hoursOf(limit, key) }, key, used, looking))
  }
  const needed = NEEDED.get(write)
  if (needed === undefined || !viewer.allow?.includes(needed)) {
    return answer(403, failurePage('You may not do this.'))
  }
  if (write === 'grant') await limit.grant(key, Number(form.get('amount') || Number.NaN))
  else if (write === 'block') await limit.block(key, form.get('duration') ?? '')
  else if (write === 'unblock') await limit.unblock(key)
  else await limit.reset(key)
  // A page that is loaded again must not do it again.
  return answer(303, '', { location: `?limit=${encodeURIComponent(limit.name)}&done=${write}` })
}

/** The fields of a form. Undefined for another kind of body, or for one that is too long. */
async function formOf(request: Request): Promise<URLSearchParams | undefined> {
  const type = request.headers.get('content-type') ?? ''
  if (!type.startsWith('application/x-www-form-urlencoded')) return undefined
  if (Number(request.headers.get('content-length') ?? 0) > MAX_BODY) return undefined
  const text = await request.text()
  return text.length > MAX_BODY ? undefined : new URLSearchParams(text)
}

async function lookingOf({ id, allow = [] }: DashboardViewer, tokens: Tokens): Promise<Looking> {
  return { token: await tokens.tokenFor(id), allow, now: Date.now() }
}

async function hoursOf(limit: Limit, key?: string) {
  return limit.isCounted ? limit.hours(key) : []
}

async function answer(status: number, body: string, more: Record<string, string> = {}): Promise<Response> {
  return new Response(status === 303 ? null : body, {
    status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': await policy(),
      'cache-control': 'no-store',
      'referrer-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      ...more,
    },
  })
}

/** Nothing is loaded, no script runs, and the only style is the page's own. */
async function policy(): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(STYLE))
  const hash = btoa(String.fromCharCode(...new Uint8Array(digest)))
  return `default-src 'none'; style-src 'sha256-${hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`
}
