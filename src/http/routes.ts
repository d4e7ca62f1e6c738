import { checkOption } from '../kernel/options/validate.ts'

/**
 * The cost of each route, by `'POST /orders'` or, for all methods, `'/orders'`. Other routes cost 1. Another
 * spelling of a path never costs less.
 */
export type RateTable = Readonly<Record<string, number>>

/** The route of a request, as the framework reports it. */
export interface Route {
  readonly method?: string | undefined
  /**
   * The path and the declared patterns of the route. The first one in a table of rates decides. In an inner
   * list, one of the entries is the request's, and the highest rate counts.
   */
  readonly paths: readonly (string | readonly string[])[]
}

/** A rate and the exact spelling of its name. */
interface NamedRate {
  readonly spelled: string
  readonly rate: number
}

/**
 * A function for the rate of a route in the table.
 *
 * Routers differ in which spellings of a path they accept for a route. So every spelling finds the rate, but
 * only the exact one ends the search. Another spelling can make a request more expensive, and never cheaper.
 *
 * @throws RatelimitError `INVALID_OPTION` for an invalid name, and for two names of one route.
 */
export function ratesOf(table: RateTable): (route: Route) => number {
  const rates = new Map(Object.entries(table).map(([name, rate]) => namedOf(name, rate)))
  checkOption(rates.size === Object.keys(table).length, 'Two names in a table of rates mean the same route.')
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

function namedOf(name: string, rate: number): [loose: string, named: NamedRate] {
  const [, method, path = ''] = /^(?:([a-z]+) )?(\S+)$/i.exec(name) ?? []
  checkOption(
    path !== '' && method?.toUpperCase() !== 'HEAD',
    "A name in a table of rates must be like 'POST /reports', or like '/reports' for all methods. HEAD counts as GET.",
  )
  const spelled = nameOf(path, method?.toUpperCase())
  return [loosened(spelled), { spelled, rate }]
}

/** The rate of the path for this method, or else for all methods. */
function find(
  rates: ReadonlyMap<string, NamedRate>,
  path: string,
  method: string | undefined,
): { readonly rate: number; readonly isExact: boolean }[] {
  for (const spelled of [nameOf(path, method), path]) {
    const named = rates.get(loosened(spelled))
    if (named) return [{ rate: named.rate, isExact: named.spelled === spelled }]
  }
  return []
}

/** The name of a route. HEAD counts as GET, because routers use the same handler. */
function nameOf(path: string, method: string | undefined): string {
  if (method === undefined) return path
  return `${method === 'HEAD' ? 'GET' : method} ${path}`
}

/**
 * The common form of all spellings of a name. An encoded slash stays encoded, as it is part of a name to
 * routers.
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
