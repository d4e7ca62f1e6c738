import stringWidth from 'string-width'
import { expect, test } from 'vitest'
import type { TopKey } from '../../../src/cli/top/keys.ts'
import type { TopReport } from '../../../src/cli/top/reading.ts'
import { View } from '../../../src/cli/top/view.ts'

const AT = Date.UTC(2026, 0, 31, 14, 3)

function keyOf(key: string, found: Partial<TopKey> = {}): TopKey {
  const row = { denials: 0, used: 1, remaining: 4, limit: 5, reset: AT + 60_000, blockedUntil: null }
  return { key, ...row, isOther: false, ...found }
}

const report: TopReport = {
  database: 'app on db.example.com',
  at: AT,
  since: AT - 3_600_000,
  limits: [
    {
      prefix: 'requests',
      denials: 1474,
      pace: 12.5,
      keys: Array.from({ length: 30 }, (_, place) => keyOf(`user:${place}`, { denials: 30 - place })),
    },
    {
      prefix: 'logins',
      denials: 1,
      pace: 0,
      keys: [
        keyOf('eve', { remaining: 0, blockedUntil: AT + 86_400_000, denials: 1 }),
        keyOf('組織'.repeat(40)),
        keyOf('other', { isOther: true, remaining: null, limit: null, reset: null }),
        keyOf('\u001b[2Jred', { used: null }),
      ],
    },
  ],
}

function viewOf(given = report): View {
  const view = new View('2s')
  view.report = given
  return view
}

const textsOf = (view: View, columns: number, rows: number) =>
  view.lines({ columns, rows }).map(({ text }) => text)

const press = (view: View, ...names: string[]) => names.some((name) => view.press({ name }))
const type = (view: View, text: string) => [...text].some((each) => view.press({ text: each, name: each }))

test.each([
  [80, 24],
  [40, 24],
  [40, 10],
  [200, 60],
  [12, 5],
  [1, 1],
  [0, 0],
])('fits a terminal of %i columns and %i rows', (columns, rows) => {
  const texts = textsOf(viewOf(), columns, rows)
  expect(texts).toHaveLength(Math.max(rows, 1))
  for (const text of texts) expect(stringWidth(text)).toBeLessThanOrEqual(Math.max(columns, 1))
  expect(texts.join('')).not.toMatch(/\p{Cc}/u)
})

test('shows the time, the interval, the database, denials a second and the columns', () => {
  const [first, second, titles, limit, key] = textsOf(viewOf(), 80, 24)
  expect(first).toMatch(/^\d\d:03:00 \S+ {2}every 2s {2}app on db\.example\.com$/)
  expect(second).toMatch(/^1,475 denied since \d\d:03, 12\.5 a second now$/)
  expect(titles).toMatch(/^ +used +left +limit +full in +denied +a second$/)
  expect(limit).toMatch(/^requests +1,474 +12\.5$/)
  expect(key).toMatch(/^ {2}user:0 +1 +4 +5 +60 s +30$/)
})

test('a narrow terminal leaves out columns, but never the denials', () => {
  for (const columns of [40, 60]) {
    const texts = textsOf(viewOf(), columns, 24)
    expect(texts[3]).toMatch(/^requests .*1,474/)
    expect(texts[4]).toMatch(/^ {2}user:0 .*30$/)
  }
  expect(textsOf(viewOf(), 40, 24)[2]).toMatch(/^ +left +denied$/)
})

test('says who is blocked, and who is on another plan', () => {
  const view = viewOf()
  press(view, 'end')
  const lines = view.lines({ columns: 80, rows: 24 })
  expect(lines.find(({ text }) => text.includes('  eve '))).toMatchObject({
    text: expect.stringMatching(/eve +1 +0 +5 +blocked 24 h +1$/),
    style: 'red',
  })
  expect(lines.find(({ text }) => text.includes('  other'))?.text).toMatch(/other +1 +other plan$/)
  expect(lines.find(({ text }) => text.includes('red'))?.text).toBe('  \ufffd[2Jred')
})

test('arrows and pages move, and stop at both ends', () => {
  const view = viewOf()
  const top = () => textsOf(view, 80, 14)[3]?.trim().split(' ')[0]
  expect(top()).toBe('requests')
  press(view, 'down')
  expect(top()).toBe('user:0')
  press(view, 'pagedown')
  expect(top()).toBe('user:10')
  press(view, 'up', 'up')
  expect(top()).toBe('user:8')
  press(view, 'pageup', 'up', 'toString')
  expect(top()).toBe('requests')
  press(view, 'end')
  expect(textsOf(view, 80, 14).at(-2)).toContain('red')
  expect(textsOf(view, 80, 14).at(-1)).toContain('36 of 36 lines')
  press(view, 'home')
  expect(top()).toBe('requests')
})

test('a slash searches, and escape ends it', () => {
  const view = viewOf()
  type(view, '/user:2qq')
  press(view, 'backspace', 'backspace')
  expect(view.search).toBe('user:2')
  expect(textsOf(view, 80, 24).at(-1)).toContain('/user:2')
  press(view, 'return')
  const found = textsOf(view, 80, 24).filter((text) => text.includes('user:'))
  expect(found.map((text) => text.trim().split(' ')[0])).toEqual(
    expect.arrayContaining(['user:2', 'user:20', 'user:29']),
  )
  expect(found.join('\n')).not.toContain('user:1')
  press(view, 'escape')
  expect(view.search).toBe('')
  expect(textsOf(view, 80, 24).join('\n')).toContain('user:1')
})

test('q and Ctrl-C stop, and q is a letter of a search', () => {
  expect(press(viewOf(), 'x', 'up', 'q')).toBe(true)
  const view = viewOf()
  expect(type(view, '/q')).toBe(false)
  expect(view.press({ name: 'c', ctrl: true })).toBe(true)
})

test('says that it reads, before there is a report', () => {
  expect(new View('2s').lines({ columns: 40, rows: 3 })[0]?.text).toBe('Reading …')
})

test('says why it could not be read again, in place of the denials, with the time of the report', () => {
  const view = viewOf()
  view.failure = 'connect ECONNREFUSED\n\u001b[2Jagain'
  const lines = view.lines({ columns: 60, rows: 24 })
  expect(lines[0]?.text).toMatch(/^\d\d:03:00 /)
  expect(lines[1]).toEqual({
    text: 'Not read since then: connect ECONNREFUSED: \ufffd[2Jagain',
    style: 'red',
  })
})
