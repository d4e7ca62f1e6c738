import type { AnyCredits } from '../any-credits.ts'
import { checkOptions, type NamesOf } from '../kernel/base/check-options.ts'
import { RatelimitError } from '../kernel/errors.ts'
import { checkFunction } from '../kernel/options/checks.ts'
import { checkOption } from '../kernel/options/validate.ts'
import type { Ratelimit } from '../ratelimit.ts'
import type { DashboardWrite } from '../shared/shown.ts'
import type { AnySemaphore } from './any-semaphore.ts'
import { failurePage } from './layout.ts'
import { faultOf, Limit, type PlannedLimit } from './limit.ts'
import { type Answer, type DashboardAction, type DashboardViewer, respond } from './respond.ts'
import { Seals } from './seal.ts'
import { STYLE } from './style.ts'

export type { DashboardAction, DashboardViewer, DashboardWrite, PlannedLimit }

/** Options of `dashboard`. */
export interface DashboardOptions {
  /** The limits to show, by the names that the page gives them. */
  readonly limiters: Readonly<Record<string, Ratelimit | AnyCredits | AnySemaphore | PlannedLimit>>
  /**
   * Says who the viewer is, before anything else happens. If it returns nothing or `false`, the answer is 403.
   * If it returns a `Response`, such as a redirect to a login, that is the answer.
   */
  readonly authorize: (request: Request) => DashboardAnswer | Promise<DashboardAnswer>
  /** Signs the forms and seals keys in addresses. At least 16 random characters, the same in all processes. */
  readonly secret: string
  /**
   * Gets each change after it was made, such as for a log of who has done what. The page waits for it. A form
   * that was sent again hands on the same change with the same `id`.
   */
  readonly onAction?: ((action: DashboardAction) => unknown) | undefined
}

/** What `authorize` returns. */
export type DashboardAnswer = DashboardViewer | Response | false | null | undefined

const OPTION_NAMES: NamesOf<DashboardOptions> = {
  limiters: true,
  authorize: true,
  secret: true,
  onAction: checkFunction,
}

const MIN_SECRET = 16

/**
 * A page for operators, as a fetch handler: limits with their keys, what these have used and have left, which
 * keys are denied, and, if `authorize` allows it, resets, grants and blocks. Mount it at any path.
 *
 * It is rendered on the server and needs no scripts. It makes no address with a key. Each form is posted with a
 * token.
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
  const { limiters, authorize, secret, onAction } = options
  checkOption(
    typeof authorize === 'function',
    'The dashboard needs authorize, a function that says who may see it.',
  )
  checkOption(
    typeof secret === 'string' && secret.length >= MIN_SECRET,
    `The dashboard needs a secret of at least ${MIN_SECRET} characters.`,
  )
  checkOption(
    typeof limiters === 'object' && limiters !== null && Object.keys(limiters).length > 0,
    'limiters must be an object with at least one limiter.',
  )
  checkOption(!('' in limiters), 'A limiter must have a name, by which addresses find it.')
  const limits = new Map(Object.entries(limiters).map(([name, given]) => [name, new Limit(name, given)]))
  const own = { limits, seals: new Seals(secret), onAction }
  return async (request) => {
    const viewer = await authorize(request)
    if (viewer instanceof Response) return viewer
    if (!viewer) return answer({ status: 403, page: failurePage('You may not see this page.') })
    checkOption(typeof viewer.id === 'string' && viewer.id !== '', 'authorize must return an id.')
    try {
      const response = await answer(await respond({ ...own, request, viewer }))
      return request.method === 'HEAD' ? new Response(null, response) : response
    } catch (error) {
      if (!(error instanceof RatelimitError)) throw error
      return answer({ status: statusOf(error), page: failurePage(faultOf(error)) })
    }
  }
}

function statusOf({ code }: RatelimitError): number {
  return code.startsWith('INVALID_') || REFUSED.has(code) ? 400 : 503
}

/** A viewer has asked for what cannot be done. */
const REFUSED: ReadonlySet<string> = new Set(['NOT_RESERVED', 'ALREADY_SETTLED', 'COUNT_OVERFLOW'])

async function answer(answered: Answer): Promise<Response> {
  const isElsewhere = 'location' in answered
  return new Response(isElsewhere ? null : answered.page, {
    status: isElsewhere ? 303 : answered.status,
    headers: {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': await policy(),
      'cache-control': 'no-store',
      'referrer-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      ...(isElsewhere ? { location: answered.location } : answered.allow ? { allow: answered.allow } : {}),
    },
  })
}

/** Nothing is loaded, no script runs, and the only style is the page's own. */
async function policy(): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(STYLE))
  const hash = btoa(String.fromCharCode(...new Uint8Array(digest)))
  return `default-src 'none'; style-src 'sha256-${hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`
}
