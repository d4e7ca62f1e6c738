import { execFile, spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

// Slow: each example is a process of its own, which loads the sources and starts PGlite.

const LOADERS = ['--import', 'tsx', '--import', resolve('test/support/pglite-data.mjs')]

async function printed(example: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [...LOADERS, `examples/${example}.ts`])
  return stdout
}

test('the scripts run the examples', async () => {
  const { scripts } = JSON.parse(await readFile('package.json', 'utf8'))
  expect(scripts).toMatchObject({
    quickstart: 'tsx examples/quickstart.ts',
    ...Object.fromEntries(
      ['dashboard', 'denied', 'express', 'hono'].map((name) => [
        `example:${name}`,
        `tsx examples/${name}.ts`,
      ]),
    ),
  })
})

test('the quickstart prints what its comments say', async () => {
  const stdout = await printed('quickstart')
  for (const shown of [
    'checkTables finds 0 differences',
    'allowed, 4 remaining',
    'denied, retry after',
    'success: true',
    'inside: 750 remaining',
    'outside: 1000 remaining',
    "'user:123'",
  ]) {
    expect(stdout).toContain(shown)
  }
})

test('the denied keys are listed', async () => {
  const stdout = await printed('denied')
  expect(stdout.trim().split('\n')).toEqual(['mallory was denied 40 times', 'eve was denied 7 times'])
})

test('an order that fails leaves the quota whole', async () => {
  const stdout = await printed('orders')
  expect(
    stdout
      .trim()
      .split('\n')
      .map((line) => line.replaceAll(/ {2,}/g, ' ')),
  ).toEqual([
    'at first quota 3, stock 2, orders 0',
    'ordered: number 1, 2 more today quota 2, stock 1, orders 1',
    'ordered: number 2, 1 more today quota 1, stock 0, orders 2',
    'failed: out of stock, and all of it is undone quota 1, stock 0, orders 2',
    'ten more lamps arrive quota 1, stock 10, orders 2',
    'ordered: number 4, 0 more today quota 0, stock 9, orders 3',
    'refused: tenant:1 may order again in 24 h quota 0, stock 9, orders 3',
  ])
})

test('exports run two at once, and a crash frees its slot', async () => {
  const stdout = await printed('exports')
  expect(stdout.trim().split('\n')).toEqual([
    '1 begins',
    '2 begins',
    '1 ends',
    '3 begins',
    '2 ends',
    '3 ends',
    'a crashed export holds a slot, so one is left: true, false',
    'after its lease: true',
  ])
})

test('calls of two workers get start times', async () => {
  const stdout = await printed('schedule')
  expect(stdout.trim().split('\n')).toEqual([
    'first: starts in 0 ms',
    'second: starts in 100 ms',
    'first: starts in 200 ms',
    'second: again in 100 ms',
  ])
})

test('a quarter of plans: upgrades, anchors, debts, mails, invoices and credits', async () => {
  const pictures = () =>
    Promise.all(['billing', 'credits'].map((name) => readFile(`examples/${name}.svg`, 'utf8')))
  const drawn = await pictures()
  const stdout = await printed('billing')
  const cells = stdout.split('\n').map((line) => line.split('│').map((cell) => cell.trim()))
  expect(cells.filter(({ length }) => length > 1).map((line) => line.slice(1, -1).join(' | '))).toEqual([
    ' | period, local time | quota | used |  | denied | mails queued',
    'Aster | 1 Jan, 00:00 to 1 Feb, 00:00 | 20,000 | 16,169 | 80 % | 0 | 80 % on 31 Jan, 16:00',
    'Aster | 1 Feb, 00:00 to 1 Mar, 00:00 | 24,822 | 24,782 | 99 % | 7 | 80 % on 18 Feb, 16:00',
    'Aster | 1 Mar, 00:00 to 1 Apr, 00:00 | 50,000 | 41,411 | 82 % | 0 | 80 % on 31 Mar, 10:00',
    'Birch | 31 Dec, 09:00 to 31 Jan, 09:00 | 7,800 | 7,795 | 99 % | 5 | 80 % on 22 Jan, 11:00',
    'Birch | 31 Jan, 09:00 to 28 Feb, 09:00 | 7,805 | 7,653 | 98 % | 0 | 80 % on 23 Feb, 11:00',
    'Birch | 28 Feb, 09:00 to 31 Mar, 09:00 | 7,952 | 7,918 | 99 % | 3 | 80 % on 23 Mar, 12:00',
    'Birch | 31 Mar, 09:00 to 30 Apr, 09:00 | 7,834 | 260 | 3 % | 0 | ',
    'Cedar | 1 Jan, 00:00 to 1 Feb, 00:00 | 1,000,000 | 998,760 | 99 % | 12 | 80 % on 16 Jan, 17:00',
    'Cedar | 1 Feb, 00:00 to 1 Mar, 00:00 | 1,000,000 | 1,106,204 | 110 % | 2 | 80 % on 20 Feb, 17:00',
    ' |  |  |  |  |  | 100 % on 27 Feb, 17:00',
    'Cedar | 1 Mar, 00:00 to 1 Apr, 00:00 | 1,000,000 | 1,129,849 | 112 % | 8 | 80 % on 25 Mar, 17:00',
    ' |  |  |  |  |  | 100 % on 27 Mar, 17:00',
    'invoice | period, local time | used | billed by',
    'Aster | 1 Jan, 00:00 to 1 Feb, 00:00 | 16,169 | the next call',
    'Aster | 1 Feb, 00:00 to 1 Mar, 00:00 | 24,782 | the next call',
    'Aster | 1 Mar, 00:00 to 1 Apr, 00:00 | 41,411 | closePeriods',
    'Birch | 31 Dec, 09:00 to 31 Jan, 09:00 | 7,795 | the next call',
    'Birch | 31 Jan, 09:00 to 28 Feb, 09:00 | 7,653 | the next call',
    'Birch | 28 Feb, 09:00 to 31 Mar, 09:00 | 7,918 | the next call',
    'Birch | 31 Mar, 09:00 to 30 Apr, 09:00 | 260 | closePeriods',
    'Cedar | 1 Jan, 00:00 to 1 Feb, 00:00 | 998,760 | the next call',
    'Cedar | 1 Feb, 00:00 to 1 Mar, 00:00 | 1,106,204 | the next call',
    'Cedar | 1 Mar, 00:00 to 1 Apr, 00:00 | 1,129,849 | closePeriods',
    'Dahlia | 1 Jan, 00:00 to 1 Feb, 00:00 | 3,000 | the next call',
    'Dahlia | 1 Feb, 00:00 to 1 Mar, 00:00 | 3,000 | the next call',
    'Dahlia | 1 Mar, 00:00 to 1 Apr, 00:00 | 3,000 | closePeriods',
    'Dahlia | of the month | of the credits | denied | credits left | top-ups | mails queued',
    '1 Jan, 00:00 to 1 Feb, 00:00 | 3,000 | 998 | 7 | 2 | 1,000 on 20 Jan, 10:00 | 80 % on 15 Jan, 16:00',
    ' |  |  |  |  |  | 100 % on 20 Jan, 16:00',
    ' |  |  |  |  |  | 250 credits left on 26 Jan, 10:00',
    '1 Feb, 00:00 to 1 Mar, 00:00 | 3,000 | 736 | 8 | 1,266 | 2,000 on 24 Feb, 16:00 | 80 % on 17 Feb, 16:00',
    ' |  |  |  |  |  | 100 % on 24 Feb, 16:00',
    '1 Mar, 00:00 to 1 Apr, 00:00 | 3,000 | 1,210 | 3 | 56 |  | 80 % on 17 Mar, 10:00',
    ' |  |  |  |  |  | 100 % on 20 Mar, 10:00',
    ' |  |  |  |  |  | 250 credits left on 27 Mar, 16:00',
  ])
  expect(stdout).toContain('examples/billing.svg and examples/credits.svg')
  expect(await pictures()).toEqual(drawn)
})

test('a month with crashes, corrections and a change of the plan is on the invoice to the cent', async () => {
  const stdout = await printed('invoice')
  const lines = stdout
    .trim()
    .split('\n')
    .map((line) => line.replaceAll(/ {2,}/g, ' '))
  for (const shown of [
    '09-05 10:00 event-2 has failed: all of it is undone',
    '09-05 10:00 event-2: 300 pages, 0 of them extra',
    '09-05 10:00 event-2 came again: nothing is charged',
    '09-09 10:00 job-1 ends: 150 pages',
    '09-09 10:00 job-1 was settled before: nothing is charged',
    '09-05 12:00 job-0 has died: 40 pages come back',
    '09-10 10:00 a mail: 100 pages are left',
    '09-12 10:00 payment-1 came again: nothing is granted',
    '09-12 10:00 event-4: 160 pages, 60 of them extra',
    '09-12 10:00 event-4 came again: nothing is charged',
    '09-14 10:00 payment-2 is taken back, with 30 credits',
    '09-16 00:30 job-2 ends: 80 pages, a correction of -20',
  ]) {
    expect(lines).toContain(shown)
  }
  expect(lines.slice(lines.indexOf('') + 1)).toEqual([
    'included, 2026-09-01 to 2026-09-16: 980 pages 15.00',
    'extra, 2026-09-01 to 2026-10-01: 60 pages 3.00',
    'credits, payment-1 10.00',
    'a year, from 2026-09-16 300.00',
    'total 328.00',
    '',
    'delivered 1670 = 1040 billed + 130 by credits + 500 of the year',
    'the ledger has 1540, the gift has lost 20',
  ])
})

/** Starts an example that serves, gives its address to the test, and ends it. */
async function served(example: string, work: (url: string) => Promise<void>): Promise<void> {
  const app = spawn(process.execPath, [...LOADERS, `examples/${example}.ts`], {
    env: { ...process.env, PORT: '0' },
  })
  try {
    const url = await new Promise<string>((resolve, reject) => {
      app.stdout.on('data', (text) => resolve(/http:[/.\d]+:\d+/.exec(String(text))?.[0] ?? ''))
      app.once('exit', (code) => reject(new Error(`${example} has ended with ${code}`)))
    })
    await work(url)
  } finally {
    app.kill()
  }
}

test('the page for operators lists limits', async () => {
  await served('dashboard', async (url) => {
    const page = await (await fetch(`${url}/?limit=api`)).text()
    expect(page).toContain('user:mallory')
    expect(page).toContain('<svg class="chart"')
  })
})

test('the Hono app limits requests by address, and reports by plan', async () => {
  await served('hono', async (url) => {
    const reports = await Promise.all([1, 2, 3].map(() => fetch(`${url}/reports`, { method: 'POST' })))
    expect(reports.map(({ status }) => status).toSorted()).toEqual([201, 201, 429])
    const denied = await fetch(`${url}/reports`, { method: 'POST', headers: { 'x-plan': 'paid' } })
    expect(denied.headers.get('ratelimit-policy')).toBe('"requests";q=10;w=60, "reports";q=100;w=3600')
    expect(await denied.json()).toMatchObject({ status: 429, 'violated-policies': ['requests'] })
    const answers = await Promise.all(Array.from({ length: 20 }, () => fetch(url)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([429]))
  })
})

test('the Express app counts failed logins by address and by account', async () => {
  await served('express', async (url) => {
    const headers = { 'content-type': 'application/json' }
    const logIn = async (email: string, password: string) => {
      const body = JSON.stringify({ email, password })
      const response = await fetch(`${url}/login`, { method: 'POST', headers, body })
      return response.status
    }
    const times = async (count: number, work: () => Promise<number>) => {
      const statuses: number[] = []
      while (statuses.length < count) statuses.push(await work())
      return statuses
    }
    // Successes do not count, failures do: three for an account, eight for an address.
    const right = () => logIn('ada@example.com', 'correct horse')
    expect(await times(10, right)).toEqual(Array.from({ length: 10 }, () => 200))
    const wrong = () => logIn('Ada@example.com', 'guess')
    expect(await times(4, wrong)).toEqual([401, 401, 401, 429])
    expect(await right()).toBe(429)
    expect(await times(4, () => logIn('grace@example.com', 'guess'))).toEqual([401, 401, 401, 429])
    expect(await times(3, () => logIn('alan@example.com', 'guess'))).toEqual([401, 401, 429])
    expect(await logIn('', '')).toBe(400)
  })
})
