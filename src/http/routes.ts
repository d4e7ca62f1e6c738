import { checkOption } from '../validate.ts'

/**
 * The cost of each route, by `'POST /orders'` or, for all methods, `'/orders'`. Others cost 1. A path that is
 * spelled in another way costs no less.
 */
export type RateTable = Readonly<Record<string, number>>

/** A request's route as a framework tells it. */
export interface Route {
  readonly method?: string | undefined
  /**
   * Paths, and patterns that routes were declared with. The first one that a table names has its rate. Where
   * several stand together, one of them is the request's, and the dearest counts.
   */
  readonly paths: readonly (string | readonly string[])[]
}

/** A rate, and the exact spelling of its name. */
interface Named {
  readonly spelled: string
  readonly rate: number
}

/**
 * The rates of a table.
 *
 * Routers differ in which spellings of a path they take for one route. So every spelling of a name finds its
 * rate, but only the exact one ends the search: any other makes a request dearer, and never cheaper.
 *
 * @throws RatelimitError `INVALID_OPTION` for a name that no route has, and for two names of one route.
 */
export function ratesOf(table: RateTable): (route: Route) => number {
  const rates = new Map(Object.entries(table).map(([name, rate]) => namedOf(name, rate)))
  checkOption(rates.size === Object.keys(table).length, 'Two names in a table of rates are one route.')
  return ({ method, paths }) => {
    let atLeast = 0
    for (const path of paths) {
      const found = [path].flat().flatMap((one) => find(rates, one, method))
      atLeast = Math.max(atLeast, ...found.map(({ rate }) => rate))
      if (found.some(({ isExact }) => isExact)) return atLeast
    }
    return Math.max(atLeast, 1)
  }
}

function namedOf(name: string, rate: number): [loose: string, named: Named] {
  const [, method, path = ''] = /^(?:([a-z]+) )?(\S+)$/i.exec(name) ?? []
  checkOption(path !== '', "A name in a table of rates is 'POST /reports', or '/reports' for all methods.")
  const spelled = nameOf(path, method?.toUpperCase())
  return [loosened(spelled), { spelled, rate }]
}

/** The rate of this method, otherwise that of all methods. */
function find(
  rates: ReadonlyMap<string, Named>,
  path: string,
  method: string | undefined,
): { readonly rate: number; readonly isExact: boolean }[] {
  for (const spelled of [nameOf(path, method), path]) {
    const named = rates.get(loosened(spelled))
    if (named) return [{ rate: named.rate, isExact: named.spelled === spelled }]
  }
  return []
}

/** Routers answer HEAD with what answers GET. */
function nameOf(path: string, method: string | undefined): string {
  if (method === undefined) return path
  return `${method === 'HEAD' ? 'GET' : method} ${path}`
}

/**
 * What all spellings of a name have in common. An encoded slash stays one, because to routers it is a part of
 * a name.
 */
function loosened(name: string): string {
  const decoded = name.split('/').map(decode).join('/').toLowerCase()
  return decoded.replaceAll(/\/+/g, '/').replace(/(?<=.)\/$/, '')
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll('/', '%2f')
  } catch {
    return part
  }
}
