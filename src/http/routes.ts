import { checkOption } from '../validate.ts'

/** The cost of each route, by `'POST /orders'` or, for all methods, `'/orders'`. Others cost 1. */
export type RateTable = Readonly<Record<string, number>>

/** A request's route as a framework tells it. */
export interface Route {
  readonly method?: string | undefined
  /** Paths, and patterns that routes were declared with. The first one that a table names has its rate. */
  readonly paths: readonly string[]
}

/**
 * The rates of a table.
 *
 * @throws RatelimitError `INVALID_OPTION` for a name that no route has, and for two names of one route.
 */
export function ratesOf(table: RateTable): (route: Route) => number {
  const rates = new Map(Object.entries(table).map(([name, rate]) => [ownName(name), rate]))
  checkOption(rates.size === Object.keys(table).length, 'Two names in a table of rates are one route.')
  return ({ method, paths }) => {
    const names = paths.flatMap((path) => namesOf(path, method))
    return names.map((name) => rates.get(name)).find((rate) => rate !== undefined) ?? 1
  }
}

function ownName(name: string): string {
  const [, method, path = ''] = /^(?:([a-z]+) )?(\S+)$/i.exec(name) ?? []
  checkOption(path !== '', "A name in a table of rates is 'POST /reports', or '/reports' for all methods.")
  return namesOf(path, method)[0]
}

/**
 * The names under which a route may stand in a table. One route is reached by many spellings, none of which may
 * be cheaper: routers decode, most ignore case and a last slash, and answer HEAD with what answers GET. An
 * encoded slash stays one, because to routers it is a part of a name.
 */
function namesOf(path: string, method: string | undefined): [own: string, anyMethod: string] {
  const decoded = path.split('/').map(decode).join('/').toLowerCase().replace(/\/+$/, '') || '/'
  const verb = method?.toUpperCase() === 'HEAD' ? 'GET' : method?.toUpperCase()
  return [verb ? `${verb} ${decoded}` : decoded, decoded]
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('/', '%2f')
  } catch {
    return part
  }
}
