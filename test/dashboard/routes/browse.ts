import { countDenials } from 'drizzle-ratelimit/denials'
import { type DashboardOptions, dashboard } from '../../../src/dashboard/index.ts'
import { type Database, type Limiter, Ratelimit } from '../../../src/index.ts'

export const secret = 'sixteen or longer'
export const five: Limiter = Ratelimit.fixedWindow(5, '1h')
export const ADA = { id: 'ada', allow: ['reset', 'grant', 'block', 'settle'] } as const

const URL_OF = 'https://admin.example/limits'
let prefixes = 0

/** A prefix that no other limiter has. */
export function newPrefix(): string {
  return `page ${prefixes++}`
}

interface Counting {
  readonly ratelimit: Ratelimit
  readonly prefix: string
  written(): Promise<void>
}

interface Page {
  readonly response: Response
  readonly status: number
  readonly text: string
  readonly location: string
}

type Fields = Readonly<Record<string, string>>

interface Browsing {
  get(search?: string): Promise<Page>
  ask(search: string, init?: RequestInit): Promise<Page>
  post(search: string, fields: Fields, headers?: Fields): Promise<Page>
  /** Opens a key by the form of a limit's page. */
  open(limit: string, key: string): Promise<Page & { readonly id: string }>
  /** Does something with a key, after the question whether to do it. */
  act(
    limit: string,
    key: string,
    what: string,
    fields?: Fields,
  ): Promise<Page & { readonly question: string }>
  tokenOf(): string
}

/** A limiter that counts denials, and waits until they are written. */
export function limiterOf(db: Database, options: object = {}): Counting {
  const handed: Promise<unknown>[] = []
  const prefix = newPrefix()
  const ratelimit = new Ratelimit({
    ...{ db, limiter: five, prefix, use: [countDenials({ every: 1 })], cleanupProbability: 0 },
    ...{ waitUntil: (work: Promise<unknown>) => void handed.push(work) },
    ...options,
  })
  const written = async () => {
    for (const each of handed) await each
  }
  return { ratelimit, written, prefix }
}

/** A page, as a browser uses it: with the token of the last page that it has seen. */
export function browse(
  limiters: DashboardOptions['limiters'],
  options: Partial<Pick<DashboardOptions, 'authorize' | 'onAction'>> = {},
): Browsing {
  const handler = dashboard({ limiters, authorize: () => ADA, secret, ...options })
  let token = ''
  const ask = async (search: string, init?: RequestInit) => {
    const response = await handler(new Request(URL_OF + search, init))
    const text = await response.text()
    token = /name="token" value="([^"]+)"/.exec(text)?.[1] ?? token
    return { response, status: response.status, text, location: response.headers.get('location') ?? '' }
  }
  const post = (search: string, fields: Fields, headers: Fields = {}) =>
    ask(search, { method: 'POST', body: new URLSearchParams({ token, ...fields }), headers })
  const get = (search = '') => ask(search)
  const open = async (limit: string, key: string) => {
    if (token === '') await get('')
    const { location } = await post(`?limit=${limit}`, { key, do: 'open' })
    const id = new URLSearchParams(location).get('id') ?? ''
    return { ...(await get(location)), id }
  }
  const act = async (limit: string, key: string, what: string, fields: Fields = {}) => {
    const { id } = await open(limit, key)
    const question = await post(`?limit=${limit}`, asSent({ id, do: what, ...fields }))
    if (question.status !== 200) return { ...question, question: question.text }
    const sure = await post(`?limit=${limit}`, asSent({ ...fieldsIn(question.text), do: what }))
    const done = sure.status === 303 ? await get(sure.location) : sure
    return { ...done, question: question.text, location: sure.location }
  }
  return { get, ask, post, open, act, tokenOf: () => token }
}

/** Browsers send each line break of a hidden field as CR and LF. */
function asSent(fields: Fields): Fields {
  const sent = Object.entries(fields).map(([name, value]) => [name, value.replaceAll(/\r\n?|\n/g, '\r\n')])
  return Object.fromEntries(sent)
}

const TEXTS: Readonly<Record<string, string>> = {
  '&amp;': '&',
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': "'",
}

/** The hidden fields of a form. */
export function fieldsIn(text: string): Record<string, string> {
  const found = text.matchAll(/type="hidden" name="([^"]+)" value="([^"]*)"/g)
  return Object.fromEntries(
    [...found].map(([, name, value = '']) => [
      name,
      value.replaceAll(/&\w+;|&#39;/g, (each) => TEXTS[each] ?? each),
    ]),
  )
}

/** The rows of the table under a heading, or of the first table: the texts of their cells, without drawings. */
export function rowsIn(text: string, heading = ''): string[][] {
  const part = text.slice(text.indexOf(heading))
  const table = /<tbody>(.*?)<\/tbody>/s.exec(part)?.[1] ?? ''
  return [...table.matchAll(/<tr>(.*?)<\/tr>/gs)].map(([, row = '']) =>
    [...row.matchAll(/<t[hd][^>]*>(.*?)<\/t[hd]>/gs)].map(([, cell = '']) =>
      cell
        .replaceAll(/<svg.*?<\/svg>/gs, '')
        .replaceAll(/<[^>]+>/g, ' ')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    ),
  )
}
