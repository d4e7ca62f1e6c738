/** The cost of each route, by `'POST /orders'` or, for all methods, `'/orders'`. Others cost 1. */
export type RateTable = Readonly<Record<string, number>>

/** A request's route as a framework tells it. */
export interface Route {
  readonly method?: string | undefined
  /** The path, or the pattern that the route was declared with. */
  readonly path: string
}

/** The rates of a table. */
export function ratesOf(table: RateTable): (route: Route) => number {
  const rates = new Map(Object.entries(table).map(([name, rate]) => [namesOf(routeNamed(name))[0], rate]))
  return (route) => {
    const [own, anyMethod] = namesOf(route)
    return rates.get(own) ?? rates.get(anyMethod) ?? 1
  }
}

function routeNamed(name: string): Route {
  const [first = '', second] = name.split(' ')
  return second === undefined ? { path: first } : { method: first, path: second }
}

/**
 * The names under which a route may stand in a table. One route is reached by many spellings, none of which may
 * be cheaper: routers decode, most ignore case and a last slash, and answer HEAD with what answers GET. An
 * encoded slash stays one, because to routers it is a part of a name.
 */
function namesOf({ method, path }: Route): [own: string, anyMethod: string] {
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
