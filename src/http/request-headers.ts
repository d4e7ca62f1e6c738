/** Headers of Fetch or of Node. */
export type RequestHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>

/** A header by its name in lower case. */
export function headerOf(
  headers: RequestHeaders,
  name: string,
): string | readonly string[] | null | undefined {
  return isFetch(headers) ? headers.get(name) : headers[name]
}

function isFetch(headers: RequestHeaders): headers is { get(name: string): string | null } {
  return typeof headers.get === 'function'
}
